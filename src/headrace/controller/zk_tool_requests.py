"""Requests that Kafka's tools and old brokers write into the metadata store: watches them, executes them, and deletes
their nodes.

    /brokers/topics                     topics created or removed
    /brokers/topics/T                   partitions added
    /admin/delete_topics                topics to delete
    /admin/reassign_partitions          reassignments to begin
    /admin/preferred_replica_election   preferred leaders to elect
    /isr_change_notification            ISRs that a leader wrote itself (before AlterPartition)
    /log_dir_event_notification         a log directory of a broker failed

Each read sets the next watch, so that no write in between is missed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headrace.controller.controller_epoch import ControllerEpoch
from headrace.controller.decisions.leader_election import ElectionKind
from headrace.controller.managers.leader_manager import LeaderManager
from headrace.controller.managers.reassignment_manager import ReassignmentManager
from headrace.controller.managers.topic_manager import TopicManager
from headrace.metadata import admin_nodes, znodes
from headrace.metastore.store import Delete, Node, NoNode, Watch, WatchEvent

log = logging.getLogger(__name__)

PAUSE_S = 0.1
"""The names of all topics are read once for all topics created within this time: a tool may create many."""

Work = Callable[[], Awaitable[object]]


class ZkToolRequests:
    """The watches of one controller epoch. `post` queues work, which is skipped if the epoch is over by then."""

    def __init__(self, controller_epoch: ControllerEpoch, post: Callable[[Work], None]) -> None:
        self._controller_epoch = controller_epoch
        self._post = post
        self.topics: TopicManager  # set before anything is watched
        self.leaders: LeaderManager
        self.reassignments: ReassignmentManager

    async def take_over(self) -> None:
        """Starts to watch, and executes the requests that wait."""
        for work in (self._marks, self._reassignment, self._preferred, self._isr_changes, self._log_dirs):
            await work()

    # Topics

    def on_topics(self, event: WatchEvent) -> None:
        """The watch on the topics' names."""
        asyncio.get_running_loop().call_later(PAUSE_S, self._post, self._topics)

    def on_topic(self, event: WatchEvent) -> None:
        """The watch on one topic's node."""
        name = event.path.rpartition("/")[2]
        self._post(lambda: self.topics.topic_changed(name))

    async def _topics(self) -> None:
        await self.topics.names_changed(await self._controller_epoch.store.children(znodes.TOPICS, self.on_topics))

    async def _marks(self) -> None:
        names = await self._controller_epoch.store.children(znodes.DELETE_TOPICS, self._again(self._marks))
        await self.topics.marks_changed(names)

    # Requests of tools

    async def _reassignment(self) -> None:
        node = await self._controller_epoch.store.exists(
            admin_nodes.REASSIGN_PARTITIONS, self._again(self._reassignment)
        )
        try:
            targets = None if node is None else admin_nodes.decode_reassignment(node.data)
        except znodes.CorruptNode as error:
            log.error("%s is malformed and is deleted: %s", admin_nodes.REASSIGN_PARTITIONS, error)
            targets = {}
        await self.reassignments.tool_targets(targets)

    async def _preferred(self) -> None:
        node = await self._controller_epoch.store.exists(admin_nodes.PREFERRED_ELECTION, self._again(self._preferred))
        if node is None:
            return
        try:
            partitions = admin_nodes.decode_partitions(node.data)
        except znodes.CorruptNode as error:
            log.error("%s is malformed and is deleted: %s", admin_nodes.PREFERRED_ELECTION, error)
            partitions = []
        for partition, failure in (await self.leaders.elect_leaders(partitions, ElectionKind.PREFERRED)).items():
            if failure is not None:
                log.info("the preferred leader of %s is not elected: %s", partition, failure.message)
        await self._delete(admin_nodes.PREFERRED_ELECTION)

    # Notifications

    async def _isr_changes(self) -> None:
        for path, node in await self._notifications(admin_nodes.ISR_CHANGES, self._isr_changes):
            try:
                partitions = admin_nodes.decode_partitions(node.data)
            except znodes.CorruptNode as error:
                log.error("%s is malformed and is deleted: %s", path, error)
                partitions = []
            known = [each for each in partitions if self._controller_epoch.state.replicas(each) is not None]
            await self._controller_epoch.reload(known)
            self._controller_epoch.send(known, leaders=False)
            await self.reassignments.finish(known)
            await self._delete(path)

    async def _log_dirs(self) -> None:
        for path, node in await self._notifications(admin_nodes.LOG_DIR_EVENTS, self._log_dirs):
            try:
                self.leaders.look_at_disks(admin_nodes.decode_log_dir_event(node.data))
            except znodes.CorruptNode as error:
                log.error("%s is malformed and is deleted: %s", path, error)
            await self._delete(path)

    async def _notifications(self, parent: str, again: Work) -> list[tuple[str, Node]]:
        found = [f"{parent}/{name}" for name in await self._controller_epoch.store.children(parent, self._again(again))]
        nodes = await self._controller_epoch.store.get_many(found)
        return [(path, node) for path, node in zip(found, nodes, strict=True) if node is not None]

    async def _delete(self, path: str) -> None:
        try:
            await self._controller_epoch.write([Delete(path)])
        except NoNode:
            return  # already deleted

    def _again(self, work: Work) -> Watch:
        return lambda event: self._post(work)
