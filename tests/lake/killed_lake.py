"""Writes a topic's table once, and kills itself at a point of it: python -m tests.lake.killed_lake B TOPIC TABLE POINT.

POINT is ACTION:N, before the Nth such action, or decode:N, in the middle of writing, at the Nth batch of records; none
is no kill.
"""

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa

from headrace.lake.core.plan import RoundLimits
from headrace.lake.core.roll import Sizes
from headrace.lake.core.writer import Action
from headrace.lake.decoding import RawDecoder
from headrace.records.format2.columns import RecordColumns
from headrace.types import TopicPartition
from tests.lake.lakes import run_once

ROUND_RECORDS = 8


def main(bootstrap: str, topic: str, table: str, point: str) -> None:
    """Run to the end, or to the point."""
    name, _, number = point.partition(":")
    seen: Counter[str] = Counter()

    def reach(what: str) -> None:
        seen[what] += 1
        if what == name and seen[what] == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

    class Decoder(RawDecoder):
        def decode(self, columns: RecordColumns, partition: TopicPartition) -> pa.RecordBatch:
            reach("decode")
            return super().decode(columns, partition)

    def on_action(action: Action) -> None:
        reach(type(action).__name__)

    limits = RoundLimits(round_records=ROUND_RECORDS)
    sizes = Sizes(group_rows=2)  # rows are in files before a round ends
    run_once(
        *(bootstrap, topic, Path(table)),
        limits=limits,
        sizes=sizes,
        make_decoder=lambda _: Decoder(),
        on_action=on_action,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
