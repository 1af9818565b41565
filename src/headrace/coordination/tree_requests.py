"""What Kafka's tools, and brokers of old versions, write into the tree for the controller: watched, done, taken away.

    /brokers/topics            topics made or taken away        /brokers/topics/T    partitions added
    /admin/delete_topics       topics to be deleted             /admin/reassign_partitions
    /admin/preferred_replica_election
    /isr_change_notification   ISRs that a leader wrote itself (before AlterPartition)
    /log_dir_event_notification   a log directory of a broker failed

Each watch is set by the reading that follows it, so that nothing written in between is missed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headrace.coordination import admin_nodes, paths
from headrace.coordination.leader_manager import LeaderManager
from headrace.coordination.preferred import ElectionKind
from headrace.coordination.reassignment_manager import ReassignmentManager
from headrace.coordination.term import Term
from headrace.coordination.topic_manager import TopicManager
from headrace.coordination.tree import Delete, Node, NoNode, Watch, WatchEvent

log = logging.getLogger(__name__)

PAUSE_S = 0.1
"""A list of all topics is read once for the many that may come within this."""

Work = Callable[[], Awaitable[object]]


class TreeRequests:
    """The watches of one term. `post` does work in its turn, if the term is not over by then."""

    def __init__(self, term: Term, post: Callable[[Work], None]) -> None:
        self._term = term
        self._post = post
        self.topics: TopicManager  # set before anything is watched
        self.leaders: LeaderManager
        self.reassignments: ReassignmentManager

    async def take_over(self) -> None:
        """Begins to watch, and does what waits."""
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
        await self.topics.names_changed(await self._term.tree.children(paths.TOPICS, self.on_topics))

    async def _marks(self) -> None:
        names = await self._term.tree.children(paths.DELETE_TOPICS, self._again(self._marks))
        await self.topics.marks_changed(names)

    # Wishes of tools

    async def _reassignment(self) -> None:
        node = await self._term.tree.exists(admin_nodes.REASSIGN_PARTITIONS, self._again(self._reassignment))
        try:
            targets = None if node is None else admin_nodes.decode_reassignment(node.data)
        except paths.CorruptNode as error:
            log.error("%s is taken away: %s", admin_nodes.REASSIGN_PARTITIONS, error)
            targets = {}
        await self.reassignments.tool_wishes(targets)

    async def _preferred(self) -> None:
        node = await self._term.tree.exists(admin_nodes.PREFERRED_ELECTION, self._again(self._preferred))
        if node is None:
            return
        try:
            partitions = admin_nodes.decode_partitions(node.data)
        except paths.CorruptNode as error:
            log.error("%s is taken away: %s", admin_nodes.PREFERRED_ELECTION, error)
            partitions = []
        for partition, failure in (await self.leaders.elect_leaders(partitions, ElectionKind.PREFERRED)).items():
            if failure is not None:
                log.info("no preferred leader of %s: %s", partition, failure.message)
        await self._take_away(admin_nodes.PREFERRED_ELECTION)

    # Notifications

    async def _isr_changes(self) -> None:
        for path, node in await self._notifications(admin_nodes.ISR_CHANGES, self._isr_changes):
            try:
                partitions = admin_nodes.decode_partitions(node.data)
            except paths.CorruptNode as error:
                log.error("%s is taken away: %s", path, error)
                partitions = []
            known = [each for each in partitions if self._term.state.replicas(each) is not None]
            await self._term.reload(known)
            self._term.tell(known, leaders=False)
            await self.reassignments.finish(known)
            await self._take_away(path)

    async def _log_dirs(self) -> None:
        for path, node in await self._notifications(admin_nodes.LOG_DIR_EVENTS, self._log_dirs):
            try:
                self.leaders.look_at_disks(admin_nodes.decode_log_dir_event(node.data))
            except paths.CorruptNode as error:
                log.error("%s is taken away: %s", path, error)
            await self._take_away(path)

    async def _notifications(self, parent: str, again: Work) -> list[tuple[str, Node]]:
        found = [f"{parent}/{name}" for name in await self._term.tree.children(parent, self._again(again))]
        nodes = await self._term.tree.get_many(found)
        return [(path, node) for path, node in zip(found, nodes, strict=True) if node is not None]

    async def _take_away(self, path: str) -> None:
        try:
            await self._term.write([Delete(path)])
        except NoNode:
            return  # somebody else was first

    def _again(self, work: Work) -> Watch:
        return lambda event: self._post(work)
