"""Brokers in one process and one event loop, that follow each other without sockets; the controller is the test.

    async with Nodes(tmp_path, 3) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2, 3))     LeaderAndIsr and UpdateMetadata to all that are up
        nodes[1].append("t", "a", "b")
        await eventually_async(lambda: nodes[2].values("t") == ["a", "b"])
        nodes.crash(2); nodes.start(2)

Requests are encoded, dispatched and answered by the broker's own code: bytes travel. The test decides who leads, grants
every change of an ISR unless told otherwise, and owns the clock that lag is measured with.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from headrace.broker.cluster.control_plane import ControlPlane
from headrace.broker.cluster.features import SUPPORTED
from headrace.broker.coordinator_host.group_service import GroupService
from headrace.broker.coordinator_host.internal_topic import (
    InternalTopic,
    offsets_topic,
    share_state_topic,
    transactions_topic,
)
from headrace.broker.coordinator_host.marker_sender import MarkerSender
from headrace.broker.coordinator_host.share_state_service import ShareStateService
from headrace.broker.coordinator_host.transaction_service import TransactionService
from headrace.broker.fetch.fetch_sessions import FetchSessionCache
from headrace.broker.handlers import advertised
from headrace.broker.partitions.durable_append import DurableAppends
from headrace.broker.partitions.partition import Partition, end_key
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.broker.partitions.transaction_markers import TransactionMarkers
from headrace.broker.produce.formats import CheckedMessages, checked_records
from headrace.broker.produce.transaction_partitions import TransactionPartitions
from headrace.broker.replication.replication_service import Replication
from headrace.broker.request.admission import Admission
from headrace.broker.request.dispatch import Dispatcher
from headrace.broker.request.purgatory import Purgatory
from headrace.broker.request.throttling import Throttling
from headrace.broker.services import Services
from headrace.broker.share.persister_client import PersisterClient
from headrace.broker.share.share_manager import ShareManager
from headrace.broker.share.share_state import ShareCoordinators
from headrace.broker.share.shares import Shares
from headrace.config.properties import parse_broker
from headrace.controller.decisions.control_requests import EPOCH_DURING_DELETE
from headrace.controller.decisions.topics import RequestedTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.log.manager import LogManager
from headrace.metadata.broker_epoch import BrokerEpoch
from headrace.metadata.entity_configs import EntityConfigs
from headrace.metadata.group_configs import GroupConfigs
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.model import LEADER_DURING_DELETE
from headrace.metadata.producer_ids import ProducerIds
from headrace.metadata.registry import ensure_cluster
from headrace.metadata.topic_configs import TopicConfigs
from headrace.metastore.embedded import EmbeddedStore
from headrace.network.peers.broker_addresses import BrokerAddresses
from headrace.network.peers.loan import Asker
from headrace.network.peers.peers import HeldConnection, PeerAddress, PeerUnreachable
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.protocol.headers import read_request_header, read_response_header, write_request_header
from headrace.records.format2.batch import Record, encode_batch, read_header
from headrace.replication.partition_state import LeaderAndIsr
from headrace.types import BrokerId, LeaderEpoch, TopicPartition
from tests.records.decoding import decode_any
from tests.simulation.frames import Served

R = TypeVar("R", bound=Message)
CLIENT = -1
"""The number of those that are no nodes."""


async def turns(count: int = 50) -> None:
    """Lets the nodes go on for a while, to see that something does not happen."""
    for _ in range(count):
        await asyncio.sleep(0.002)


def with_format(node: "Node", topic: str, version: str) -> None:
    """Has a node store the topic's next messages in the format of an Apache Kafka release."""
    log = node.partition(topic).log
    log.configure(replace(log.config, message_format_version=version))


def topic_id(topic: str) -> bytes:
    """The same for every node, another for each topic."""
    return topic.encode().ljust(16, b"\1")[:16]


class _Pipe:
    """One connection between two nodes, at the end that is served: what `Served` sends is the answer."""

    peer_host = "in-process"

    def __init__(self, node: "Node") -> None:
        self.on_bytes: Callable[[bytes], None] = lambda data: None
        self.on_closed: Callable[[str], None] = lambda reason: None
        self.answers: list[asyncio.Future[bytes]] = []
        self.served = Served(cast(Any, self), node.dispatcher)

    def send(self, data: bytes) -> None:
        answer = self.answers.pop(0)
        if not answer.done():
            answer.set_result(data)

    def close(self) -> None:
        for answer in self.answers:
            if not answer.done():
                answer.set_exception(PeerUnreachable("closed"))
        self.answers.clear()


class InProcessPeers:
    """`Peers` between nodes."""

    def __init__(self, nodes: "Nodes", own: int) -> None:
        self._nodes, self._own = nodes, own
        self._pipes: dict[tuple[int, str], _Pipe] = {}
        self.asked: list[Message] = []
        self.correlation_id = 1
        """Of each request that is not on a lent connection."""
        self.newest: dict[str, int] = {}
        """The newest version, by the request's class, that others are taken to serve."""
        self.lends = True
        """Whether followers may take the shortest way."""
        self.lent = 0
        """Requests that took it."""

    async def send(
        self,
        to: PeerAddress,
        request: Message,
        answer: type[R],
        *,
        timeout_ms: int,
        lane: str = "",
        client_id: str = "",
    ) -> R:
        node = self._nodes.up.get(to.id)
        if node is None or (self._own, to.id) in self._nodes.cuts:
            raise PeerUnreachable(f"node {to.id} is not there")
        self.asked.append(request)
        pipe = self._pipes.get((to.id, lane))
        if pipe is None or pipe.served.is_closed or pipe.served._dispatch is not node.dispatcher:
            pipe = self._pipes[to.id, lane] = _Pipe(node)
        key = ApiKey(cast(int, request.API_KEY))
        name = type(request).__name__
        version = min(self.newest.get(name, request.VERSIONS[-1]), request.VERSIONS[-1])
        correlation_id = self.correlation_id
        frame = write_request_header(key, version, correlation_id, client_id or "node") + request.encode(version)
        data = await self._answer_to(pipe, frame, to, name)
        answered_id, pos = read_response_header(data, key, version)
        assert answered_id == correlation_id
        return answer.decode(version, data, pos)[0]

    def lend(
        self, to: PeerAddress, asker: Asker, request: type[Message], answer: type[R], *, timeout_ms: int, lane: str = ""
    ) -> Awaitable[R | None] | None:
        pipe, name = self._pipes.get((to.id, lane)), request.__name__
        node = self._nodes.up.get(to.id)
        if not self.lends or pipe is None or pipe.served.is_closed or pipe.answers or node is None:
            return None
        if (self._own, to.id) in self._nodes.cuts or pipe.served._dispatch is not node.dispatcher:
            return None
        version = min(self.newest.get(name, request.VERSIONS[-1]), request.VERSIONS[-1])
        size = asker.ask(1, version, b"node")
        return self._lent(to, pipe, asker, request, answer, version, size) if size else None

    async def _lent(
        self,
        to: PeerAddress,
        pipe: _Pipe,
        asker: Asker,
        request: type[Message],
        answer: type[R],
        version: int,
        size: int,
    ) -> R | None:
        key = ApiKey(cast(int, request.API_KEY))
        while size:
            frame = bytes(asker.out[4:size])
            assert frame == bytes(asker.out[:size])[4:] and int.from_bytes(asker.out[:4], "big") == size - 4
            _, pos = read_request_header(frame)
            self.asked.append(request.decode(version, frame, pos)[0])
            self.lent += 1
            data = await self._answer_to(pipe, frame, to, request.__name__)
            if not asker.take(cast(Any, data), 0, len(data)):
                _, pos = read_response_header(data, key, version)
                return answer.decode(version, data, pos)[0]
            size = asker.ask(1, version, b"node")
        return None

    async def _answer_to(self, pipe: _Pipe, frame: bytes, to: PeerAddress, name: str) -> bytes:
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        pipe.answers.append(waiting)
        pipe.on_bytes(frame)
        data = await waiting
        held = self._nodes.holding.get(name)
        if held is not None and self._own != CLIENT:
            self._nodes.held.append(name)
            await held.wait()
        if (to.id, self._own) in self._nodes.cuts:
            raise PeerUnreachable(f"the answer of node {to.id} is lost")
        return data

    async def hold(self, to: PeerAddress, *, timeout_ms: int) -> HeldConnection:
        raise PeerUnreachable("nobody watches anybody here")

    def disconnect(self, broker: BrokerId, why: str) -> None:
        for (to, _), pipe in self._pipes.items():
            if to == broker:
                pipe.served.close(why)

    async def close(self) -> None:
        for pipe in self._pipes.values():
            pipe.served.close("over")


class AllFeatures:
    """The features of a cluster of headrace's brokers."""

    def __init__(self) -> None:
        self.epoch = 1
        self.finalized = {name: levels[-1] for name, levels in SUPPORTED.items()}

    def level(self, feature: str) -> int:
        """The level of a feature."""
        return self.finalized.get(feature, 0)


class Node:
    """One broker, without sockets and without a controller of its own."""

    def __init__(self, nodes: "Nodes", number: int, settings: dict[str, str]) -> None:
        config = parse_broker(
            {
                "broker.id": str(number),
                "broker.rack": f"rack-{number}",
                "zookeeper.connect": "none",
                "replica.fetch.wait.max.ms": "50",
                "replica.fetch.backoff.ms": "20",
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
                "share.coordinator.state.topic.num.partitions": "1",
                "group.initial.rebalance.delay.ms": "0",
                **settings,
            }
        )
        loop = asyncio.get_running_loop()
        self.nodes = nodes
        self.id, self.registered = BrokerId(number), BrokerEpoch(nodes.next_broker_epoch())
        self.peers = InProcessPeers(nodes, number)
        self.tasks: set[asyncio.Task[None]] = set()
        self.logs = LogManager([nodes.directory / str(number)], broker_id=number, topic_config=nodes.configs.get)
        self.logs.directories.claim("cluster")
        self.logs.load(nodes.now_ms)
        self.metadata, self.purgatory = MetadataCache(), Purgatory(loop)

        def touch(key: TopicPartition) -> None:
            self.purgatory.touch(key)
            self.purgatory.touch(end_key(key))

        def now_ms() -> int:
            return nodes.now_ms

        self.replicas = ReplicaManager(
            self.id,
            self.logs,
            self.metadata,
            nodes.configs,
            now_ms=now_ms,
            touch=touch,
            lag_max_ms=config.replica_lag_time_max_ms,
        )
        book = BrokerAddresses(self.metadata, "")
        self.control = ControlPlane(self.replicas, self.metadata, nodes.configs, book, broker_epoch=self.registered)
        self.replication = Replication(
            config,
            self.id,
            broker_epoch=self.registered,
            peers=self.peers,
            addresses=book,
            replicas=self.replicas,
            controller=cast(Any, nodes),
            purgatory=self.purgatory,
            loop=loop,
            now_ms=now_ms,
            spawn=self._spawn,
        )
        self.appends = DurableAppends(self.replicas, self.purgatory, loop=loop, now_ms=now_ms)
        self.groups = GroupService(
            config,
            InternalTopic(offsets_topic(config, is_alone=False), self.metadata, nodes.create_topics),
            self.metadata,
            appends=self.appends,
            spawn=self._spawn,
            loop=loop,
            now_ms=now_ms,
        )
        self.markers = TransactionMarkers(
            self.replicas,
            self.appends,
            self.purgatory,
            self.groups,
            timeout_ms=nodes.marker_timeout_ms,
            loop=loop,
            now_ms=now_ms,
        )
        self.transactions = TransactionService(
            config,
            InternalTopic(transactions_topic(config, is_alone=False), self.metadata, nodes.create_topics),
            producer_ids=ProducerIds(nodes.store, self.id),
            appends=self.appends,
            make_markers=lambda report: MarkerSender(
                self.id,
                metadata=self.metadata,
                addresses=book,
                peers=self.peers,
                local=self.markers,
                partition_count=nodes.partition_count,
                report=report,
                spawn=self._spawn,
                loop=loop,
                request_timeout_ms=config.request_timeout_ms,
            ),
            spawn=self._spawn,
            loop=loop,
            now_ms=now_ms,
            version=lambda: 2,
        )
        self.transaction_partitions = TransactionPartitions(
            self.id,
            replicas=self.replicas,
            addresses=book,
            peers=self.peers,
            local=self.transactions,
            spawn=self._spawn,
            loop=loop,
            now_ms=now_ms,
            is_enabled=lambda: config.transaction_partition_verification_enable,
            retry_backoff_ms=config.add_partitions_to_txn_retry_backoff_ms,
            retry_backoff_max_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
            request_timeout_ms=config.request_timeout_ms,
        )
        self.share_state = ShareCoordinators(
            InternalTopic(share_state_topic(config, is_alone=False), self.metadata, nodes.create_topics),
            lambda topic: ShareStateService(
                config,
                topic,
                metadata=self.metadata,
                replicas=self.replicas,
                appends=self.appends,
                spawn=self._spawn,
                loop=loop,
                now_ms=now_ms,
            ),
            lambda share_state: PersisterClient(
                self.id,
                share_state,
                metadata=self.metadata,
                addresses=book,
                peers=self.peers,
                spawn=self._spawn,
                loop=loop,
                random_bytes=bytes,
                request_timeout_ms=config.request_timeout_ms,
            ),
        )
        self.throttling = Throttling(config, loop.time)
        self.group_configs = GroupConfigs(cast(EntityConfigs, self), config)
        self.shares = Shares(
            lambda: ShareManager(
                self.replicas,
                lambda: self.share_state.persister,
                self.group_configs,
                sessions_max=config.share_sessions_max,
                touch=self.purgatory.touch,
                spawn=self._spawn,
                loop=loop,
                now_ms=now_ms,
            )
        )
        self.replicas.on_leadership(self.shares.leadership_changed)
        self.replicas.on_leadership(self.share_state.leadership_changed)
        self.metadata.on_change(self.share_state.on_metadata)
        self.replicas.on_leadership(self.groups.runtime.leadership_changed)
        self.replicas.on_leadership(self.transactions.runtime.leadership_changed)
        self.metadata.on_change(self.groups.on_metadata)
        parts: dict[str, Any] = {
            "config": config,
            "cluster_id": "cluster",
            "loop": loop,
            "tasks": self,
            "now_ms": now_ms,
            "purgatory": self.purgatory,
            "metadata": self.metadata,
            "replicas": self.replicas,
            "appends": self.appends,
            "markers": self.markers,
            "controller": nodes,
            "groups": self.groups,
            "transactions": self.transactions,
            "share_state": self.share_state,
            "shares": self.shares,
            "group_configs": self.group_configs,
            "throttling": self.throttling,
            "admission": Admission(),
            "features": nodes.features,
            "transaction_partitions": self.transaction_partitions,
            "fetch_sessions": FetchSessionCache(100, nodes.next_broker_epoch),
            "control": self.control,
            "replication": self.replication,
            "served": advertised(),
        }
        given: dict[str, Any] = {each.name: parts.get(each.name) for each in fields(Services)}
        broker = Services(**given)
        self.dispatcher = Dispatcher(broker)
        self.replication.start()

    @property
    def broker_epoch(self) -> int:
        """Of its registration."""
        return self.registered.value

    @broker_epoch.setter
    def broker_epoch(self, value: int) -> None:
        self.registered.value = value

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    create_task = _spawn

    def on_change(self, _kind: str, listener: Callable[[str, Mapping[str, str]], None]) -> None:
        """In the place of the store of entities: what groups set comes from the test."""
        self.configure_group = listener

    def partition(self, topic: str, number: int = 0) -> Partition:
        """The replica here."""
        found = self.replicas.find((topic, number))
        assert found is not None, f"node {self.id} has no {topic}-{number}"
        return found

    def append(self, topic: str, *values: str, acks: int = 1) -> int:
        """As leader, a batch for each value; the offset of the last."""
        partition, last = self.partition(topic), -1
        for value in values:
            batch = memoryview(encode_batch([Record(0, 0, None, value.encode(), ())]))
            checked = checked_records(batch, partition.log.config, 9, 0, True)
            if isinstance(checked, CheckedMessages):
                last = partition.append_set(checked, now_ms=0, acks=acks).last_offset
            else:
                last = partition.append(batch, read_header(batch), now_ms=0, acks=acks).last_offset
        partition.touch_appended(self.purgatory)
        return last

    def values(self, topic: str) -> list[str]:
        """Everything that the replica's log holds, committed or not."""
        log, found = self.partition(topic).log, []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read_bytes(log.read(offset, 1 << 20, end_offset=log.log_end_offset, at_least_one=True))
            for each in decode_any(data):
                found.append((each.value or b"").decode())
                offset = each.offset + 1
        return found

    def high_watermark(self, topic: str) -> int:
        """Of the replica."""
        return self.partition(topic).high_watermark

    async def ask(self, request: Message, answer: type[R], version: int | None = None) -> R:
        """As a client would."""
        return await self.connection().ask(request, answer, version)

    def connection(self) -> "Connection":
        """A client's connection, whose requests are handled in order."""
        return Connection(self)

    def end(self) -> None:
        """Everything stops at once, without a word to the disk."""
        self.replication.close()
        self.groups.runtime.close()
        self.transactions.close()
        self.share_state.close()
        self.shares.close()
        for task in list(self.tasks):
            task.cancel()
        self.logs.release()


class Connection:
    """A client's connection to a node."""

    def __init__(self, node: Node) -> None:
        self._node, self._peers = node, InProcessPeers(node.nodes, CLIENT)

    async def ask(self, request: Message, answer: type[R], version: int | None = None) -> R:
        """Sends a request at once; returns the response."""
        if version is not None:
            self._peers.newest[type(request).__name__] = version
        return await self._peers.send(PeerAddress(self._node.id, "", 0), request, answer, timeout_ms=0)


class Nodes:
    """The nodes, the controller's mind, and the clock."""

    is_active = True

    def __init__(self, directory: Path, count: int, **settings: str) -> None:
        self.directory = directory
        self.numbers = range(1, count + 1)
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.up: dict[int, Node] = {}
        self.cuts: set[tuple[int, int]] = set()
        """(from, to): what the first asks or answers does not reach the second."""
        self.now_ms = 1_000_000
        self.marker_timeout_ms = 5_000
        self.features = AllFeatures()
        """Set it before the nodes start."""
        self.states: dict[str, LeaderAndIsr] = {}
        self.ids: dict[str, bytes] = {}
        """Of topics that were made anew under another id."""
        self.refusing: int = ErrorCode.NONE
        """What is answered to a change of an ISR, unless it is granted."""
        self.holding: dict[str, asyncio.Event] = {}
        """By the request's class: answers to nodes wait for this."""
        self.held: list[str] = []
        """The answers that wait, or have waited, by the request's class."""
        self.changes: defaultdict[str, list[tuple[int, ...]]] = defaultdict(list)
        """The ISRs that were granted, in order."""
        self._last_epoch = 0

    def hold(self, request: type[Message]) -> asyncio.Event:
        """From now on, answers to such requests between nodes wait for the event."""
        self.held.clear()
        event = self.holding[request.__name__] = asyncio.Event()
        return event

    def next_broker_epoch(self) -> int:
        """A number that was not there before."""
        self._last_epoch += 1
        return self._last_epoch

    async def __aenter__(self) -> Self:
        for number in self.numbers:
            (self.directory / str(number)).mkdir(parents=True, exist_ok=True)
        self._tree_directory = self.directory / "tree"
        self._tree_directory.mkdir(exist_ok=True)
        self.store = await EmbeddedStore.open(self._tree_directory)
        await ensure_cluster(self.store)
        self.defaults = parse_broker(self.settings).topic_defaults
        self.entities = EntityConfigs(self.store)
        self.configs = TopicConfigs(self.entities, self.defaults)
        await self.entities.start()
        for number in self.numbers:
            await self.start(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in list(self.up):
            self.crash(number)
        await asyncio.sleep(0)
        await self.entities.close()
        await self.store.close()

    def __getitem__(self, number: int) -> Node:
        return self.up[number]

    async def start(self, number: int) -> Node:
        """A node comes up, and hears how things are."""
        node = self.up[number] = Node(self, number, self.settings)
        for topic in self.states:
            await self._tell(node, topic)
        return node

    def crash(self, number: int) -> None:
        """A node is gone; its files are as they are."""
        self.up.pop(number).end()

    async def lead(
        self,
        topic: str,
        *,
        leader: int,
        replicas: Sequence[int] | None = None,
        isr: Sequence[int] | None = None,
        to: Sequence[int] | None = None,
    ) -> None:
        """A new leader epoch of the topic's only partition; `to`: only these nodes hear of it now."""
        old = self.states.get(topic)
        who = tuple(map(BrokerId, replicas)) if replicas else (old.replicas if old else ())
        isr_ids = tuple(map(BrokerId, isr)) if isr else (old.isr if old else who)
        epoch = LeaderEpoch(old.leader_epoch + 1 if old else 0)
        self.states[topic] = LeaderAndIsr(BrokerId(leader), epoch, isr_ids, old.partition_epoch + 1 if old else 0, who)
        for number, node in self.up.items():
            if to is None or number in to:
                await self._tell(node, topic)

    def id_of(self, topic: str) -> bytes:
        """The topic's present id."""
        return self.ids.get(topic, topic_id(topic))

    async def create_topics(self, wishes: Sequence[RequestedTopic]) -> Mapping[str, KafkaError | None]:
        """Makes topics that node 1 leads and all others follow."""
        for wish in wishes:
            await self.lead(wish.name, leader=1, replicas=self.numbers)
        return {wish.name: None for wish in wishes}

    async def partition_count(self, topic: str) -> int:
        """The partitions of a topic: one, or none after its deletion."""
        return int(topic in self.states)

    async def delete(self, topic: str, *, new_id: bytes | None = None) -> None:
        """The topic is gone, and every node that is up is told; it may be made anew under the same id, or `new_id`."""
        gone = self.states.pop(topic)._replace(leader=LEADER_DURING_DELETE)
        stopped = m.StopReplicaRequest.StopReplicaPartitionState(
            partition_index=0, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True
        )
        for node in self.up.values():
            await node.control.handle(self._metadata(node, topic, gone))
            stop = m.StopReplicaRequest(
                controller_id=1,
                controller_epoch=1,
                broker_epoch=node.broker_epoch,
                topic_states=[m.StopReplicaRequest.StopReplicaTopicState(topic_name=topic, partition_states=[stopped])],
            )
            await node.control.handle(stop)
        if new_id is not None:
            self.ids[topic] = new_id

    async def _tell(self, node: Node, topic: str) -> None:
        state = self.states[topic]
        told = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=0,
            controller_epoch=1,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
            replicas=list(state.replicas),
        )
        topic_state = m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
            topic_name=topic, topic_id=self.id_of(topic), partition_states=[told]
        )
        leader_and_isr = m.LeaderAndIsrRequest(
            controller_id=1, controller_epoch=1, broker_epoch=node.broker_epoch, topic_states=[topic_state]
        )
        await node.control.handle(leader_and_isr)
        await node.control.handle(self._metadata(node, topic, state))

    def _metadata(self, node: Node, topic: str, state: LeaderAndIsr) -> m.UpdateMetadataRequest:
        partition = m.UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=0,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=state.partition_epoch,
            replicas=list(state.replicas),
        )
        return m.UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            broker_epoch=node.broker_epoch,
            topic_states=[
                m.UpdateMetadataRequest.UpdateMetadataTopicState(
                    topic_name=topic, topic_id=self.id_of(topic), partition_states=[partition]
                )
            ],
            live_brokers=[
                m.UpdateMetadataRequest.UpdateMetadataBroker(
                    id=number,
                    rack=f"rack-{number}",
                    endpoints=[
                        m.UpdateMetadataRequest.UpdateMetadataEndpoint(
                            listener="PLAINTEXT", host=f"node-{number}", port=number, security_protocol=0
                        )
                    ],
                )
                for number in self.numbers
            ],
        )

    async def alter_partition(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        """As the controller: grants what is asked in the present epochs, unless `refusing`."""
        topics = []
        for topic in request.topics:
            (asked,) = topic.partitions
            state = self.states[topic.topic_name]
            answer = m.AlterPartitionResponse.PartitionData(partition_index=0, error_code=self.refusing)
            if asked.leader_epoch != state.leader_epoch:
                answer.error_code = ErrorCode.FENCED_LEADER_EPOCH
            elif asked.partition_epoch != state.partition_epoch:
                answer.error_code = ErrorCode.INVALID_UPDATE_VERSION
            if not answer.error_code:
                isr = tuple(BrokerId(each.broker_id) for each in asked.new_isr_with_epochs)
                state = state._replace(isr=isr, partition_epoch=state.partition_epoch + 1)
                self.states[topic.topic_name] = state
                self.changes[topic.topic_name].append(isr)
                answer.leader_id, answer.leader_epoch = state.leader, state.leader_epoch
                answer.isr, answer.partition_epoch = list(isr), state.partition_epoch
            topics.append(
                m.AlterPartitionResponse.TopicData(
                    topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=[answer]
                )
            )
        return m.AlterPartitionResponse(topics=topics)
