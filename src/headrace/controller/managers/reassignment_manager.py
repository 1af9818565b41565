"""Reassignments: begins them for clients or /admin/reassign_partitions, and finishes them once the new replicas are in
the ISR.

The topics' nodes record the reassignments under way, so the next controller continues them.
Source: Kafka's `KafkaController.processApiPartitionReassignment`, `processZkPartitionReassignment`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from headrace.controller.controller_epoch import ControllerEpoch
from headrace.controller.decisions.reassignment import ReassignmentStep, finish, is_complete, plan_reassignment
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import in_slices
from headrace.metadata import admin_nodes, znodes
from headrace.metadata.model import Replicas
from headrace.metastore.store import BadVersion, Delete, NoNode, Op, Set
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

Targets = Mapping[TopicPartition, tuple[BrokerId, ...] | None]

TRIES_MAX = 5


class ReassignmentManager:
    """Reassignments in one controller epoch."""

    def __init__(self, controller_epoch: ControllerEpoch) -> None:
        self._controller_epoch = controller_epoch
        self._by_tool: dict[TopicPartition, tuple[BrokerId, ...]] = {}  # of /admin/reassign_partitions, under way
        self._in_node: Targets | None = None  # what that node holds; None: it is not there

    def under_way(self, among: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Replicas]:
        """Partitions that are being reassigned."""
        state = self._controller_epoch.state
        wanted = state.moving() if among is None else among
        found = {partition: state.replicas(partition) for partition in wanted}
        return {partition: each for partition, each in found.items() if each is not None and each.is_moving}

    async def begin(self, targets: Targets, *, keep_factor: bool = False) -> dict[TopicPartition, KafkaError | None]:
        """Begins, replaces or cancels (target None) reassignments; returns the outcome of each, None for success."""
        outcomes: dict[TopicPartition, KafkaError | None] = {}

        def plan(partition: TopicPartition) -> ReassignmentStep | None:
            outcomes[partition] = None
            try:
                return plan_reassignment(
                    self._controller_epoch.state,
                    partition,
                    targets[partition],
                    self._controller_epoch.epoch,
                    keep_factor=keep_factor,
                )
            except KafkaError as error:
                outcomes[partition] = error.with_traceback(None)  # thousands would keep their frames
                return None

        for partition in await self._walk(targets, plan):
            outcomes[partition] = KafkaError(
                f"Another writer keeps changing {partition}; try again.", ErrorCode.UNKNOWN_SERVER_ERROR
            )
        await self.finish(targets)
        return outcomes

    async def finish(self, among: Iterable[TopicPartition] | None = None) -> None:
        """Finishes the reassignments whose new replicas are all in the ISR."""
        state, epoch = self._controller_epoch.state, self._controller_epoch.epoch
        wanted = list(state.moving() if among is None else among)
        await self._walk(
            [each for each in wanted if is_complete(state, each)],
            lambda partition: finish(state, partition, epoch) if is_complete(state, partition) else None,
        )
        await self._settle_with_tool()

    async def take_over(self) -> None:
        """Continues the reassignments that an earlier controller began."""
        await self.finish()

    # Steps

    async def _walk(
        self, partitions: Iterable[TopicPartition], plan: Callable[[TopicPartition], ReassignmentStep | None]
    ) -> list[TopicPartition]:
        """Writes and sends the step that `plan` returns for each partition. Returns the partitions that another writer
        kept changing."""
        left = list(partitions)
        for _ in range(TRIES_MAX):
            by_topic: dict[str, dict[int, ReassignmentStep]] = {}
            async for partition in in_slices(left):
                step = plan(partition)
                if step is not None:
                    by_topic.setdefault(partition.topic, {})[partition.partition] = step
            left = []
            for topic, steps in by_topic.items():
                if await self._write(topic, steps):
                    self._send(topic, steps)
                else:
                    left += [TopicPartition(topic, number) for number in steps]
            if not left:
                break
        return left

    async def _write(self, name: str, steps: Mapping[int, ReassignmentStep]) -> bool:
        """Whether the steps were written. If not, another writer changed a state, and the states are read again."""
        controller_epoch = self._controller_epoch
        topic = controller_epoch.state.topics[name]
        moved = topic._replace(partitions={**topic.partitions, **{n: step.replicas for n, step in steps.items()}})
        led = {n: step.leadership for n, step in steps.items() if step.leadership is not None}
        ops: list[Op] = [Set(znodes.topic(name), znodes.encode_topic(moved))]
        ops += [
            Set(znodes.partition_state(name, n), znodes.encode_leadership(each), each.partition_epoch)
            for n, each in led.items()
        ]
        try:
            versions = (await controller_epoch.write(ops))[1:]
        except (BadVersion, NoNode) as error:
            log.info("another writer changed %s during a reassignment", error.path)
            await controller_epoch.reload(TopicPartition(name, number) for number in steps)
            return False
        controller_epoch.state.topics[name] = moved
        controller_epoch.remember(
            {
                TopicPartition(name, number): each._replace(partition_epoch=version)
                for (number, each), version in zip(led.items(), versions, strict=True)
                if isinstance(version, int)
            }
        )
        return True

    def _send(self, name: str, steps: Mapping[int, ReassignmentStep]) -> None:
        self._controller_epoch.send([TopicPartition(name, number) for number in steps])
        for number, step in steps.items():
            partition = TopicPartition(name, number)
            log.info("%s: the replicas are now %s, and %s were removed", partition, step.replicas, step.dropped)
            if step.added and step.leadership is not None:
                self._controller_epoch.send_new(partition, step.added)
            self._controller_epoch.stop(partition, step.dropped, delete=True)

    # /admin/reassign_partitions

    async def tool_targets(self, targets: Mapping[TopicPartition, tuple[BrokerId, ...]] | None) -> None:
        """Takes in the content of /admin/reassign_partitions (None if it does not exist), and begins new targets."""
        self._in_node = targets
        new = {each: target for each, target in (targets or {}).items() if self._by_tool.get(each) != target}
        before, self._by_tool = self._by_tool, self._by_tool | new
        try:
            outcomes = await self.begin(new)
        except BaseException:
            self._by_tool = before  # may not have begun; the retry of this event begins it again
            raise
        for partition, error in outcomes.items():
            if error is not None:
                log.error(
                    "the reassignment of %s in /admin/reassign_partitions is refused: %s", partition, error.message
                )
                self._by_tool.pop(partition, None)
        await self._settle_with_tool()

    async def _settle_with_tool(self) -> None:
        """Removes finished reassignments from the node, and deletes the node when none is left."""
        self._by_tool = {each: target for each, target in self._by_tool.items() if self.under_way([each])}
        if self._in_node is None or (self._by_tool and self._in_node == self._by_tool):
            return
        path, held = admin_nodes.REASSIGN_PARTITIONS, dict(self._by_tool)
        op: Op = Set(path, admin_nodes.encode_reassignment(held)) if held else Delete(path)
        try:
            await self._controller_epoch.write([op])
        except NoNode:
            held = {}  # the tool deleted the node, which cancels no reassignment
        self._in_node = held or None
