"""Group scenarios as readable text: what happens on the left, what is answered on the right.

    time in ms   event                        ->   answers, in order, separated by ';'
    0            A join                       ->   A join: MEMBER_ID_REQUIRED
    0            A join
    3000         .                            ->   A join: generation 1, range, leader A, of A
    3000         A sync A=x                   ->   A sync: x

Letters name clients; a client remembers the member id that it was given. Time passes before the event, and what
falls due on the way is answered first. Events:

    A join [v=9] [id=no] [static=i] [protocols=range,sticky] [session=10000] [rebalance=60000] [type=consumer]
    A sync [A=x B=y] [generation=n] [static=i]        A heartbeat [generation=n] [static=i]
    A leave | A,B leave | leave static=i              A commit t-0=5 [generation=n] [metadata=text]
    simple commit t-0=5                               fetch [t-0 …]
    log holds | log writes | log fails CODE           whether writes are done at once, later, or never
    log lags CODE                                     they are in the log, and not durable in time, until `log writes`
    unload | load                                     another broker takes the partition, and it comes back
    .                                                 only time passes
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from headrace.config import BrokerConfig
from headrace.coordinators.groups.classic.group import ClassicGroup
from headrace.coordinators.groups.classic.members import Join
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.group_event import Actions
from headrace.coordinators.groups.loading import GroupLoading
from headrace.coordinators.groups.modern.topics import ModernTopic
from headrace.coordinators.runtime import Answer, Append, Effect
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.types import TopicPartition

GROUP = "g"
PARTITION = 0


class GivenTopics:
    """The topics that a test says there are."""

    def __init__(self, *topics: ModernTopic) -> None:
        self.version = self.newest_version = 1
        self._topics = {each.name: each for each in topics}

    def by_name(self, name: str) -> ModernTopic | None:
        """The topic of this name."""
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> ModernTopic | None:
        """The topic of this id."""
        return next((each for each in self._topics.values() if each.topic_id == topic_id), None)

    def names(self) -> Collection[str]:
        """The names of all topics."""
        return self._topics.keys()

    def put(self, *topics: ModernTopic, gone: Iterable[str] = ()) -> None:
        """Adds or replaces topics, and removes others."""
        self.version += 1
        for each in gone:
            del self._topics[each]
        if any(each.name not in self._topics for each in topics):
            self.newest_version = self.version
        self._topics.update({each.name: each for each in topics})


@dataclass
class World:
    """One coordinator, its log, and clients that hold what they were told."""

    config: BrokerConfig = field(default_factory=BrokerConfig)
    now_ms: int = 0
    mode: str = "writes"
    failure: ErrorCode = ErrorCode.NONE
    durable_to: int = 0
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    held: list[Append[Any]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)  # client -> member id
    clients: dict[str, str] = field(default_factory=dict)  # every member id ever -> client
    generations: dict[str, int] = field(default_factory=dict)
    topics: GivenTopics = field(default_factory=GivenTopics)
    open_tokens: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._ids, self._tokens = count(1), count(1)
        self.start()

    def start(self) -> None:
        """A coordinator that knows nothing but the log."""
        self.held.clear()
        self.coordinator = GroupCoordinator(
            self.config,
            lambda _: PARTITION,
            lambda: f"{next(self._ids)}",
            self.now_ms,
            self.topics,
            high_watermark=lambda _: self.durable_to if self.mode == "lags" else len(self.log),
        )
        self.load()

    def load(self) -> None:
        """Read the log."""
        loading = self.coordinator.partitions.begin(PARTITION, 0)
        assert loading is not None
        for offset, (key, value) in enumerate(self.log):
            loading.record(key, value, offset)
        self.finish(loading)

    def finish(self, loading: GroupLoading) -> None:
        """The log is read."""
        for actions in self.coordinator.loaded(loading, self.now_ms):
            self.carry_out(actions)
        assert self.coordinator.partitions.finish(PARTITION, loading)

    @property
    def group(self) -> ClassicGroup:
        """The group as the coordinator has it."""
        group = self.classic_group
        assert group is not None
        return group

    @property
    def classic_group(self) -> ClassicGroup | None:
        """The group, if there is one."""
        group = self.coordinator._groups.get(GROUP)
        assert group is None or isinstance(group, ClassicGroup)
        return group

    # carrying out

    def carry_out(self, actions: Actions) -> None:
        """As the broker's shell does: in order, writes that are done at once at the end of the queue."""
        queue = list(actions)
        while queue:
            action = queue.pop(0)
            if isinstance(action, Answer):
                action.reply(action.message)
            elif isinstance(action, Effect):
                raise AssertionError(f"a classic group asks for nothing but writes: {action.what}")
            elif self.mode == "holds":
                self.held.append(action)
            else:
                queue += self.write(action, self.failure)

    def write(self, append: Append[Any], error: ErrorCode = ErrorCode.NONE) -> Actions:
        """The append is done, or has failed."""
        offset = -1
        if error is ErrorCode.NONE or self.mode == "lags":
            offset = len(self.log)
            self.log += append.records
        return [] if append.then is None else self.coordinator.appended(append.then, error, offset, self.now_ms)

    def pass_time(self, until_ms: int) -> None:
        """Every deadline up to then, each at its time."""
        while (due_ms := self.coordinator.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.carry_out(self.coordinator.tick(self.now_ms))
        self.now_ms = until_ms

    def token(self, client: str, what: str) -> Callable[[Any], None]:
        """A reply that says who was told what, and that must be used once."""
        number = next(self._tokens)
        self.open_tokens.add(number)

        def reply(message: Any) -> None:
            assert number in self.open_tokens, f"{client} {what} is answered twice"
            self.open_tokens.remove(number)
            self.said.append(f"{client} {what}: {self._told(client, message)}")

        return reply

    def _told(self, client: str, message: Any) -> str:
        if isinstance(message, m.JoinGroupResponse):
            return self._told_join(client, message)
        if isinstance(message, m.SyncGroupResponse):
            return _code(message.error_code) if message.error_code else message.assignment.decode() or "nothing"
        errors = {each.error_code for topic in message.topics for each in topic.partitions}
        if len(errors) == 1:
            return _code(errors.pop())
        return ", ".join(
            f"{topic.name}-{each.partition_index} {_code(each.error_code)}"
            for topic in message.topics
            for each in topic.partitions
        )

    def _told_join(self, client: str, message: m.JoinGroupResponse) -> str:
        if message.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.ids[client] = message.member_id
            self.clients[message.member_id] = client
        if message.error_code:
            return _code(message.error_code)
        self.generations[client] = message.generation_id
        leader = self._name(message.leader)
        if message.leader != self.ids.get(leader):
            leader = f"old {leader}"
        text = f"generation {message.generation_id}, {message.protocol_name}, leader {leader}"
        if message.members:
            text += ", of " + " ".join(sorted(self._name(each.member_id) for each in message.members))
        return text + (", nothing to assign" if message.skip_assignment else "")

    def _name(self, member_id: str) -> str:
        """The client that has, or had, this member id; one that was not told it yet is known by the first part."""
        return self.clients.get(member_id) or member_id.partition("-")[0].removeprefix("client")

    # events

    def join(self, client: str, **o: str) -> None:
        version = int(o.get("v", "9"))
        protocols = tuple(
            (name, f"{client}:{name}".encode()) for name in o.get("protocols", "range").split(",") if name
        )
        if "topics" in o:
            protocols = tuple((name, subscription(o["topics"].split(","))) for name, _ in protocols)
        request = m.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=int(o.get("session", "10000")),
            rebalance_timeout_ms=int(o.get("rebalance", "60000")),
            member_id="" if o.get("id") == "no" else o.get("id", self.ids.get(client, "")),
            group_instance_id=o.get("static"),
            protocol_type=o.get("type", "consumer"),
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name=n, metadata=d) for n, d in protocols],
        )
        event = Join.from_request(request, version, f"client{client}", "/127.0.0.1")
        self.carry_out(self.coordinator.classic.join(event, self.token(client, "join"), self.now_ms))

    def sync(self, client: str, **o: str) -> None:
        request = m.SyncGroupRequest(
            group_id=GROUP,
            generation_id=self._generation(client, o),
            member_id=o.get("id", self.ids.get(client, "")),
            group_instance_id=o.get("static"),
            protocol_type=o.get("type"),
            protocol_name=o.get("protocol"),
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=self.ids[each], assignment=what.encode())
                for each, what in o.items()
                if each in self.ids
            ],
        )
        self.carry_out(self.coordinator.classic.sync(request, self.token(client, "sync"), self.now_ms))

    def heartbeat(self, client: str, **o: str) -> None:
        request = m.HeartbeatRequest(
            group_id=GROUP,
            generation_id=self._generation(client, o),
            member_id=o.get("id", self.ids.get(client, "")),
            group_instance_id=o.get("static"),
        )
        self.said.append(f"{client} heartbeat: {_code(self.coordinator.classic.heartbeat(request, self.now_ms))}")

    def leave(self, clients: str, **o: str) -> None:
        names = clients.split(",") if clients else [""]
        identities = [
            m.LeaveGroupRequest.MemberIdentity(
                member_id=o.get("id", self.ids.get(name, "")), group_instance_id=o.get("static")
            )
            for name in names
        ]
        left, actions = self.coordinator.classic.leave(GROUP, identities, self.now_ms)
        codes = ", ".join(map(_code, left.members)) if left.error is ErrorCode.NONE else _code(left.error)
        self.said.append(f"{clients} leave: {codes}".lstrip())
        self.carry_out(actions)

    def commit(self, client: str, **o: str) -> None:
        is_simple = client == "simple"
        partitions = {key: int(value) for key, value in o.items() if "-" in key}
        topics = {key.rpartition("-")[0] for key in partitions}
        request = m.OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=-1 if is_simple else self._generation(client, o),
            member_id=o.get("id", "" if is_simple else self.ids.get(client, "")),
            group_instance_id=o.get("static"),
            retention_time_ms=int(o.get("retention", "-1")),
            topics=[
                m.OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        m.OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=int(key.rpartition("-")[2]),
                            committed_offset=offset,
                            committed_metadata=o.get("metadata", ""),
                        )
                        for key, offset in partitions.items()
                        if key.rpartition("-")[0] == topic
                    ],
                )
                for topic in sorted(topics)
            ],
        )
        self.carry_out(self.coordinator.commit(request, 8, self.token(client, "commit"), self.now_ms))

    def fetch(self, *names: str, stable: bool = False) -> None:
        partitions = [_partition(name) for name in names] or None
        error, fetched = self.coordinator.fetch_offsets(GROUP, partitions, stable)
        found = (
            f"{each.partition}={_code(each.error) if each.error else each.offset}"
            for each in sorted(fetched, key=lambda each: each.partition)
        )
        self.said.append("fetch: " + (_code(error) if error else " ".join(found) or "nothing"))

    def set_log(self, mode: str, code: str = "NONE") -> None:
        """`writes` also does what was held, `fails` and `lags` fail it."""
        self.mode, self.failure, self.durable_to = mode, ErrorCode[code], len(self.log)
        if mode != "holds":
            held, self.held = self.held, []
            for append in held:
                self.carry_out(self.write(append, self.failure))

    def unload(self) -> None:
        self.coordinator.partitions.release(PARTITION)
        self.carry_out(self.coordinator.unloaded(PARTITION, self.now_ms))

    def _generation(self, client: str, options: dict[str, str]) -> int:
        return int(options.get("generation", self.generations.get(client, -1)))

    def do(self, event: str) -> None:
        """One event of a scenario."""
        words = event.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        match plain:
            case ["."]:
                pass
            case ["log", mode, *code]:
                self.set_log(mode, *code)
            case ["fetch", *names]:
                self.fetch(*[name for name in names if name != "stable"], stable="stable" in names)
            case ["unload"]:
                self.unload()
            case ["load"]:
                self.load()
            case ["leave"]:
                self.leave("", **options)
            case [client, "join" | "sync" | "heartbeat" | "leave" | "commit" as what]:
                getattr(self, what)(client, **options)
            case _:
                raise ValueError(f"what is {event!r}?")


def play(text: str, **settings: Any) -> World:
    """Plays a scenario; every line must be answered as it says. Settings are BrokerConfig's."""
    world = World(replace(BrokerConfig(), **settings))
    for line in filter(None, map(str.strip, text.splitlines())):
        left, _, right = line.partition("->")
        at, _, event = left.strip().partition(" ")
        world.said.clear()
        world.pass_time(int(at.replace("_", "")))
        world.do(event.strip())
        expected = [each.strip() for each in right.split(";") if each.strip()]
        assert world.said == expected, f"{line}\nsaid: {'; '.join(world.said)}"
    return world


def subscription(topics: list[str]) -> bytes:
    """A consumer's subscription, version 0."""
    return b"\0\0" + m.ConsumerProtocolSubscription(topics=topics, user_data=None).encode(0)


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def _code(code: int) -> str:
    return "ok" if code == ErrorCode.NONE else ErrorCode(code).name
