"""Reassignments: begun by clients or /admin/reassign_partitions, finished when the new replicas are in sync.

What is under way is in the topics' nodes, so another controller goes on with it.
Source: Kafka's `KafkaController.processApiPartitionReassignment`, `processZkPartitionReassignment`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from headrace.coordination import admin_nodes, paths
from headrace.coordination.model import Replicas
from headrace.coordination.reassignment import Step, finish, is_complete, plan_reassignment
from headrace.coordination.term import Term
from headrace.coordination.tree import BadVersion, Delete, NoNode, Op, Set
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

Targets = Mapping[TopicPartition, tuple[BrokerId, ...] | None]

TRIES_MAX = 5


class ReassignmentManager:
    """Reassignments in one term."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._by_tool: dict[TopicPartition, tuple[BrokerId, ...]] = {}  # of /admin/reassign_partitions, under way
        self._in_node: Targets | None = None  # what that node holds; None: it is not there

    def under_way(self, among: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Replicas]:
        """Partitions that are being reassigned."""
        state = self._term.state
        wanted = state.moving() if among is None else among
        found = {partition: state.replicas(partition) for partition in wanted}
        return {partition: each for partition, each in found.items() if each is not None and each.is_moving}

    async def begin(self, targets: Targets, *, keep_factor: bool = False) -> dict[TopicPartition, KafkaError | None]:
        """Begins, replaces or cancels (None); what became of each."""
        outcomes: dict[TopicPartition, KafkaError | None] = {}

        def plan(partition: TopicPartition) -> Step | None:
            outcomes[partition] = None
            try:
                return plan_reassignment(
                    self._term.state, partition, targets[partition], self._term.epoch, keep_factor=keep_factor
                )
            except KafkaError as error:
                outcomes[partition] = error
                return None

        for partition in await self._walk(targets, plan):
            outcomes[partition] = KafkaError(f"{partition} keeps changing.", ErrorCode.UNKNOWN_SERVER_ERROR)
        await self.finish(targets)
        return outcomes

    async def finish(self, among: Iterable[TopicPartition] | None = None) -> None:
        """Finishes those whose new replicas are all in sync."""
        state, epoch = self._term.state, self._term.epoch
        wanted = list(state.moving() if among is None else among)
        await self._walk(
            [each for each in wanted if is_complete(state, each)],
            lambda partition: finish(state, partition, epoch) if is_complete(state, partition) else None,
        )
        await self._settle_with_tool()

    async def take_over(self) -> None:
        """Goes on with what an earlier controller began."""
        await self.finish()

    # Steps

    async def _walk(
        self, partitions: Iterable[TopicPartition], plan: Callable[[TopicPartition], Step | None]
    ) -> list[TopicPartition]:
        """Writes and tells the step that `plan` has for each; those that somebody else kept changing."""
        left = list(partitions)
        for _ in range(TRIES_MAX):
            by_topic: dict[str, dict[int, Step]] = {}
            for partition in left:
                step = plan(partition)
                if step is not None:
                    by_topic.setdefault(partition.topic, {})[partition.partition] = step
            left = []
            for topic, steps in by_topic.items():
                if await self._write(topic, steps):
                    self._tell(topic, steps)
                else:
                    left += [TopicPartition(topic, number) for number in steps]
            if not left:
                break
        return left

    async def _write(self, name: str, steps: Mapping[int, Step]) -> bool:
        """Whether it was written; if not, somebody else changed a state, and what is known of them is up to date."""
        term = self._term
        topic = term.state.topics[name]
        moved = topic._replace(partitions={**topic.partitions, **{n: step.replicas for n, step in steps.items()}})
        led = {n: step.leadership for n, step in steps.items() if step.leadership is not None}
        ops: list[Op] = [Set(paths.topic(name), paths.encode_topic(moved))]
        ops += [
            Set(paths.partition_state(name, n), paths.encode_leadership(each), each.partition_epoch)
            for n, each in led.items()
        ]
        try:
            versions = (await term.write(ops))[1:]
        except (BadVersion, NoNode) as error:
            log.info("%s was changed by somebody else during a reassignment", error.path)
            await term.reload(TopicPartition(name, number) for number in steps)
            return False
        term.state.topics[name] = moved
        term.know(
            {
                TopicPartition(name, number): each._replace(partition_epoch=version)
                for (number, each), version in zip(led.items(), versions, strict=True)
                if isinstance(version, int)
            }
        )
        return True

    def _tell(self, name: str, steps: Mapping[int, Step]) -> None:
        self._term.tell([TopicPartition(name, number) for number in steps])
        for number, step in steps.items():
            partition = TopicPartition(name, number)
            log.info("%s: replicas %s, dropped %s", partition, step.replicas, step.dropped)
            if step.added and step.leadership is not None:
                self._term.tell_new(partition, step.added)
            self._term.stop(partition, step.dropped, delete=True)

    # /admin/reassign_partitions

    async def tool_wishes(self, targets: Mapping[TopicPartition, tuple[BrokerId, ...]] | None) -> None:
        """What the node holds now, None when it is not there: begins what is new of it."""
        self._in_node = targets
        new = {each: target for each, target in (targets or {}).items() if self._by_tool.get(each) != target}
        self._by_tool |= new
        for partition, error in (await self.begin(new)).items():
            if error is not None:
                log.error("%s is not reassigned as /admin/reassign_partitions says: %s", partition, error.message)
                self._by_tool.pop(partition, None)
        await self._settle_with_tool()

    async def _settle_with_tool(self) -> None:
        """Takes out of the node what is done; takes the node away when nothing is left."""
        for partition in [each for each in self._by_tool if not self.under_way([each])]:
            del self._by_tool[partition]
        if self._in_node is None or (self._by_tool and self._in_node == self._by_tool):
            return
        path, held = admin_nodes.REASSIGN_PARTITIONS, dict(self._by_tool)
        op: Op = Set(path, admin_nodes.encode_reassignment(held)) if held else Delete(path)
        self._in_node = held or None
        try:
            await self._term.write([op])
        except NoNode:
            self._in_node = None  # the tool took it away, which cancels nothing
