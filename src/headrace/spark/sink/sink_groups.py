"""What the transactional sink remembers in consumer groups: which batch each task committed, what the driver decided.

    group                            offset   metadata                    committed by
    headrace-sink-WRITE-TASK         BATCH    rows N                      the task's transaction, with the rows
    headrace-sink-WRITE-driver       BATCH    Decision, as JSON           the driver, before it ends any transaction
    headrace-sink-WRITE-driver.1 …   BATCH    the decision's rest         before the first part, which makes it valid

All stand at partition 0 of one topic (`SinkOptions.place`), because offsets can be committed for partitions that exist
only. The metadata of an offset is bounded (`offset.metadata.max.bytes`, 4096), hence the parts.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.client.core.cluster import Cluster
from headrace.client.core.group_metadata import OffsetAndMetadata
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.producer.prepared import PreparedTransaction
from headrace.spark.sink.sink_errors import malformed
from headrace.spark.sink.sink_marks import Mark
from headrace.types import TopicPartition

_ROWS: Final = re.compile(r"rows (\d+)")
_PART_CHARS: Final = 3600
"""Leaves room for the rest of the first part; all characters are ASCII."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the driver decided about a batch.

    Final: these transactions are to be committed, and nobody writes the batch again. Not final: some of them were lost
    (timed out, fenced), and their tasks have to write the batch again.
    """

    batch: int
    run: str
    """The run of the query; another one after each restart."""
    tasks: int
    """The number of tasks that a run of the batch must have; 0 where none has committed."""
    is_final: bool
    prepared: Mapping[int, PreparedTransaction] = field(default_factory=dict)
    """By task; only of a final decision. Tasks that had committed before are missing."""


class SinkGroups:
    """The groups of one write."""

    def __init__(self, cluster: Cluster, place: TopicPartition, write: str) -> None:
        self._groups, self._place, self._write = GroupAdmin(cluster), place, write

    def rows_committed(self, mark: Mark) -> int | None:
        """The number of rows that the task's transaction for this batch committed; None if there is none.

        Waits for a transaction of the task that is being ended.
        """
        found = self._committed(mark.group_id, require_stable=True)
        if found is None or found.offset != mark.batch:
            return None
        rows = _ROWS.fullmatch(found.metadata)  # in the idempotent mode, the same group has something else there
        return None if rows is None else int(rows[1])

    def decision(self, *, with_prepared: bool = True) -> Decision | None:
        """The driver's last decision; its transactions may take several requests, and are left out if not wanted.

        Raises SinkGroupError if the group has anything else.
        """
        found = self._committed(self._driver_group(0))
        if found is None:
            return None
        try:
            head = json.loads(found.metadata)
            text = head["prepared"] if with_prepared else ""
            for part in range(1, head["parts"] if with_prepared else 1):
                more = self._committed(self._driver_group(part))
                text += more.metadata if more is not None else ""
            prepared = dict(self._read(one) for one in text.split())
            return Decision(int(found.offset), head["run"], head["tasks"], head["final"], prepared)
        except (ValueError, KeyError, TypeError) as wrong:
            raise malformed(self._driver_group(0), found.metadata) from wrong

    def decide(self, decision: Decision) -> None:
        """Store a decision. It is valid once this returns, and unknown if it raises KafkaError."""
        text = " ".join(
            f"{task}.{one.producer_id}.{one.epoch}.{one.transaction_version}"
            for task, one in sorted(decision.prepared.items())
        )
        parts = [text[at : at + _PART_CHARS] for at in range(0, len(text), _PART_CHARS)] or [""]
        head = {"run": decision.run, "tasks": decision.tasks, "final": decision.is_final, "parts": len(parts)}
        metadata = [json.dumps({**head, "prepared": parts[0]}), *parts[1:]]
        for number in reversed(range(len(parts))):
            self._groups.commit(self._driver_group(number), {self._place: decision.batch}, metadata[number])

    def _read(self, text: str) -> tuple[int, PreparedTransaction]:
        task, producer_id, epoch, version = (int(number) for number in text.split("."))
        return task, PreparedTransaction(Mark(self._write, 0, task).transactional_id, producer_id, epoch, version)

    def _driver_group(self, part: int) -> str:
        return f"headrace-sink-{self._write}-driver" + (f".{part}" if part else "")

    def _committed(self, group_id: str, *, require_stable: bool = False) -> OffsetAndMetadata | None:
        return self._groups.committed(group_id, [self._place], require_stable=require_stable).get(self._place)


def metadata_of(rows: int) -> str:
    """The metadata beside a task's batch."""
    return f"rows {rows}"
