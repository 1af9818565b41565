"""The shortest ways of a group's member, compiled and not, do what the general way does: the same answers, the same
state of the group, the same records, the same counts, byte for byte."""

import random
import socket
import time
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from headrace.broker.coordinator_host import plain_groups
from headrace.broker.coordinator_host.plain_groups import PlainGroups
from headrace.broker.request.dispatch import Dispatcher
from headrace.broker.request.shortcuts import Shortcuts
from headrace.coordinators.groups.consumer import steady
from headrace.coordinators.groups.group import Group
from headrace.errors import ErrorCode, StorageError
from headrace.log import appending
from headrace.network import connection as connections
from headrace.network.connection import Connection, Shortcut
from headrace.protocol import messages as m
from headrace.protocol.headers import read_response_header, write_request_header
from headrace.records.format2.batch import crc_is_valid, read_header
from headrace.testing import Broker
from headrace.topics import OFFSETS_TOPIC
from tests.broker.test_plain_fetch import dispatcher_of
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import receive_frame
from tests.uncompiled import uncompiled
from tests.wire import Wire
from tests.wire import string as wire_string

WAYS = ("compiled", "uncompiled", "general")
TOPICS = {"some": 3, "other": 2}
MEMBER = "A" * 22
SESSION_MS = 1_800_000
"""Members of a module are alive as long as tests of other modules take in between."""
SETTINGS = {
    **{
        f"group.{kind}.{which}session.timeout.ms": SESSION_MS
        for kind in ("consumer", "share")
        for which in ("max.", "")
    },
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "offset.metadata.max.bytes": 50,
}
Topic, Partition = (
    m.OffsetCommitRequest.OffsetCommitRequestTopic,
    m.OffsetCommitRequest.OffsetCommitRequestPartition,
)


class Uncompiled(Shortcut):
    """Lets a compiled connection use the shortest way of the uncompiled module."""

    def __init__(self, module: ModuleType, dispatcher: Dispatcher) -> None:
        super().__init__()
        keys = (
            m.HeartbeatRequest, m.ConsumerGroupHeartbeatRequest, m.ShareGroupHeartbeatRequest, m.OffsetCommitRequest,
        )  # fmt: skip
        times = [dispatcher.handlers[each.API_KEY].times for each in keys]
        self.plain: Any = module.PlainGroups(dispatcher._services, *times)
        self.plain._steady = uncompiled(steady).SteadyHeartbeats(dispatcher._services.groups.coordinator._groups)

    def answer(self, connection: Connection, octets: memoryview, start: int, end: int, at: int) -> int:
        view = memoryview(octets)
        if end - start < 2 or view[start]:
            return 0
        answer_end = int(self.plain.answer(connection, view, start, end, at))
        if answer_end:
            self.out[at:answer_end] = self.plain.out[at:answer_end]
        return answer_end


class Clock:
    """The time of the coordinator, which stands while all ways are asked."""

    def __init__(self) -> None:
        self.ms = int(time.time() * 1000)


CALM_MS = 2_000
"""After a rebalance, a group asks for the next heartbeats soon for a while."""


class Setting(NamedTuple):
    """A broker, and its shortest ways by name."""

    broker: Broker
    dispatcher: Dispatcher
    shortcuts: dict[str, Any]
    ids: dict[str, bytes]
    clock: Clock

    @property
    def services(self) -> Any:
        return self.dispatcher._services

    @property
    def log(self) -> Any:
        return self.services.replicas.partitions[OFFSETS_TOPIC, 0].log

    def taken(self) -> dict[str, int]:
        return {
            "compiled": self.shortcuts["compiled"].groups.taken,
            "uncompiled": self.shortcuts["uncompiled"].plain.taken,
        }

    def group(self, name: str) -> Group | None:
        group: Group | None = self.services.groups.coordinator.find(name)
        return group


def has_coordinator(wire: Wire) -> None:
    """Waits until groups are served."""

    def is_served() -> bool:
        group = wire_string("any")
        no_offsets = group + b"\0\0\0\0"
        return wire.ask(10, 0, group)[:2] == b"\0\0" and wire.ask(9, 2, no_offsets)[-2:] == b"\0\0"

    eventually(is_served)


@pytest.fixture(scope="module")
def setting() -> Iterator[Setting]:
    with Broker(settings=SETTINGS) as broker, Wire(broker.bootstrap) as wire:
        for topic, count in TOPICS.items():
            assert wire.create_topic(topic, count) == 0
        has_coordinator(wire)
        found = dispatcher_of(broker)
        compiled = found.shortcut
        assert isinstance(compiled, Shortcuts)
        assert type(compiled.groups) is PlainGroups
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connections, "Shortcut", uncompiled(connections).Shortcut)
            module = uncompiled(plain_groups)
        shortcuts = {"compiled": compiled, "uncompiled": Uncompiled(module, found), "general": None}
        wanted = [m.MetadataRequest.MetadataRequestTopic(name=topic) for topic in TOPICS]
        answer, _ = m.MetadataResponse.decode(
            12, wire.ask(3, 12, b"\0" + m.MetadataRequest(topics=wanted).encode(12)), 1
        )
        ids = {each.name: each.topic_id for each in answer.topics if each.name is not None}
        clock = Clock()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(found._services.groups.runtime, "now_ms", lambda: clock.ms)
            yield Setting(broker, found, shortcuts, ids, clock)


class Member:
    """A member of a group of its own, on a connection by one of the ways."""

    def __init__(self, setting: Setting, way: str, group: str) -> None:
        self.setting, self.way, self.group = setting, way, f"{group}-{WAYS.index(way)}"
        self.member_id, self.epoch = "", -1
        host, _, port = setting.broker.bootstrap.rpartition(":")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(setting.dispatcher, "shortcut", setting.shortcuts[way])
            self.socket = socket.create_connection((host, int(port)), WITHIN_SECONDS)
            self.ask(m.ApiVersionsRequest(), 0)  # the connection is there, with its shortcut

    def send(self, request: Any, version: int, client: str | None = "me") -> None:
        body = write_request_header(request.API_KEY, version, 7, client) + request.encode(version)
        self.socket.sendall(len(body).to_bytes(4, "big") + body)

    def ask(self, request: Any, version: int, client: str | None = "me") -> bytes:
        self.send(request, version, client)
        return receive_frame(self.socket)

    def answer(self, request: Any, version: int) -> Any:
        """The decoded response."""
        frame = self.ask(request, version)
        _, position = read_response_header(frame, request.API_KEY, version)
        kind = getattr(m, type(request).__name__.replace("Request", "Response"))
        return kind.decode(version, memoryview(frame), position)[0]

    def join(self, instance_id: str | None = None) -> "Member":
        """Joins as a classic member, which leads."""
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"x")
        joining = m.JoinGroupRequest(
            group_id=self.group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=45_000, protocol_type="consumer",
            protocols=[protocol], member_id=self.member_id, group_instance_id=instance_id,
        )  # fmt: skip
        joined = self.answer(joining, 5)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joining.member_id = joined.member_id
            joined = self.answer(joining, 5)
        assert joined.error_code == 0
        self.member_id, self.epoch = joined.member_id, joined.generation_id
        assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"y")
        syncing = m.SyncGroupRequest(
            group_id=self.group, generation_id=self.epoch, member_id=self.member_id, assignments=[assignment],
            group_instance_id=instance_id,
        )  # fmt: skip
        assert self.answer(syncing, 3).error_code == 0
        return self

    def subscribe(self, instance_id: str | None = None) -> "Member":
        """Joins by KIP-848, and comes to its assignment."""
        heartbeat = m.ConsumerGroupHeartbeatRequest
        self.member_id = MEMBER
        request = heartbeat(
            group_id=self.group, member_id=MEMBER, member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=["some"], topic_partitions=[], instance_id=instance_id,
        )  # fmt: skip
        for _ in range(3):
            answer = self.answer(request, 1)
            assert answer.error_code == 0
            self.epoch, owned = answer.member_epoch, None
            if answer.assignment is not None:
                owned = [
                    heartbeat.TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                    for each in answer.assignment.topic_partitions
                ]
            request = heartbeat(
                group_id=self.group,
                member_id=MEMBER,
                member_epoch=self.epoch,
                topic_partitions=owned,
                instance_id=instance_id,
            )
        return self

    def state(self) -> object:
        """What the coordinator knows of the group, without what differs between the groups of the ways."""
        coordinator, group = self.setting.services.groups.coordinator, self.setting.group(self.group)
        if group is None:
            return None
        deadlines = coordinator._groups.deadlines._at_ms
        offsets = {key: each._replace(record_offset=-1) for key, each in group.offsets.committed.items()}
        members = list(group.members)
        timers = sorted(
            (int(timer.kind), members.index(timer.member_id), at_ms)
            for timer, at_ms in deadlines.items()
            if timer.group_id == self.group and timer.member_id in members
        )
        return offsets, dict(group.offsets.pending), timers, getattr(group, "epoch", None), group.overview().state

    def close(self) -> None:
        self.socket.close()


def members_of(setting: Setting, group: str) -> list[Member]:
    return [Member(setting, way, group) for way in WAYS]


@pytest.fixture(scope="module")
def classic(setting: Setting) -> Iterator[list[Member]]:
    found = [each.join() for each in members_of(setting, "classic")]
    yield found
    for each in found:
        each.close()


@pytest.fixture(scope="module")
def static(setting: Setting) -> Iterator[list[Member]]:
    found = [each.join("instance") for each in members_of(setting, "static")]
    yield found
    for each in found:
        each.close()


@pytest.fixture(scope="module")
def new(setting: Setting) -> Iterator[list[Member]]:
    found = [each.subscribe() for each in members_of(setting, "new")]
    setting.clock.ms += CALM_MS
    yield found
    for each in found:
        each.close()


def batches_from(setting: Setting, offset: int, group: str) -> list[bytes]:
    """The batches from an offset on, without their offsets and checksums, and with one name for the groups of all
    ways."""
    log, found = setting.log, []
    while offset < log.log_end_offset:
        chunk = log.read(offset, 1 << 20, end_offset=log.log_end_offset, at_least_one=True)
        data, position = log.read_bytes(chunk), 0
        while position < len(data):
            header = read_header(data[position:])
            batch = data[position : position + header.size_bytes]
            assert header.base_offset == offset
            assert crc_is_valid(data, position, header)
            found.append((batch[8:17] + batch[21:]).replace(group.encode(), b"?"))
            position, offset = position + header.size_bytes, header.next_offset
    return found


def counted(setting: Setting, api_key: int) -> tuple[Any, ...]:
    traffic = setting.services.replicas.traffic.of(OFFSETS_TOPIC)
    return (
        *setting.dispatcher.handlers[api_key].times.by_version,
        traffic.produces,
        traffic.messages_in,
        traffic.bytes_in,
    )


def same(setting: Setting, members: list[Member], make: Any, version: int, client: str | None = "me") -> bytes:
    """The answer to the request that `make` makes for a member. It is the same by all ways, and so is what they did."""
    outcomes = []
    setting.clock.ms += 11
    for member in members:
        request = make(member)
        before, offset = counted(setting, request.API_KEY), setting.log.log_end_offset
        answer = member.ask(request, version, client).replace(member.group.encode(), b"?")
        counts = [now - then for now, then in zip(counted(setting, request.API_KEY), before, strict=True)]
        outcomes.append((answer, counts, batches_from(setting, offset, member.group), member.state()))
    assert outcomes[0] == outcomes[2], "compiled"
    assert outcomes[1] == outcomes[2], "uncompiled"
    answered: bytes = outcomes[0][0]
    return answered


def beat(
    generation: int = 0, member_id: str | None = None, group: str | None = None, instance: str | None = None
) -> Any:
    """A Heartbeat of a member, in another generation by so many."""
    return lambda member: m.HeartbeatRequest(
        group_id=member.group if group is None else group,
        generation_id=member.epoch + generation,
        member_id=member.member_id if member_id is None else member_id,
        group_instance_id=instance,
    )


@pytest.mark.parametrize("version", range(5))
def test_heartbeats_of_classic_members(
    setting: Setting, classic: list[Member], static: list[Member], new: list[Member], version: int
) -> None:
    before = setting.taken()
    good = same(setting, classic, beat(), version)
    assert good == same(setting, classic, beat(), version, client=None)
    assert all(taken - before[way] == 2 for way, taken in setting.taken().items())
    refused = [beat(1), beat(-1), beat(0, "who"), beat(0, ""), beat(0, None, "nowhere"), beat(0, None, "")]
    refused += [beat(0, "\u00fc"), beat(0, None, "\u00fc")]
    for each in refused:
        assert same(setting, classic, each, version) != good
    assert same(setting, new, beat(), version) != good, "a member of KIP-848 sends no such heartbeat"
    assert all(taken - before[way] == 2 for way, taken in setting.taken().items())
    if version >= 3:
        assert same(setting, static, beat(instance="instance"), version) == good
        assert same(setting, static, beat(instance="other"), version) != good
        assert same(setting, static, beat(0, "who", instance="instance"), version) != good
        assert same(setting, static, beat(instance=""), version) != good


@pytest.mark.parametrize("version", range(2))
def test_heartbeats_of_consumer_groups(
    setting: Setting, classic: list[Member], new: list[Member], version: int
) -> None:
    def new_beat(epoch: int = 0, member_id: str = MEMBER, group: str | None = None, **told: Any) -> Any:
        return lambda member: m.ConsumerGroupHeartbeatRequest(
            group_id=member.group if group is None else group,
            member_id=member_id,
            member_epoch=member.epoch + epoch,
            **told,
        )

    before = setting.taken()
    good = same(setting, new, new_beat(), version)
    assert good == same(setting, new, new_beat(), version)
    assert all(taken - before[way] == 2 for way, taken in setting.taken().items())
    for each in (new_beat(1), new_beat(0, "who"), new_beat(0, ""), new_beat(0, MEMBER, "nowhere")):
        assert same(setting, new, each, version) != good
    same(setting, new, new_beat(-1), version)
    same(setting, classic, new_beat(), version)
    for told in ({"rebalance_timeout_ms": 60_000}, {"rack_id": "r"}, {"server_assignor": "uniform"}):
        same(setting, new, new_beat(**told), version)
    same(setting, new, new_beat(subscribed_topic_names=["some"]), version)
    assert all(taken - before[way] == 2 for way, taken in setting.taken().items())
    same(setting, new, new_beat(), version, client="another")  # which the group notes
    same(setting, new, new_beat(), version, client=None)
    same(setting, new, new_beat(), version)
    assert same(setting, new, new_beat(), version) == good


def test_heartbeats_of_static_members_of_consumer_groups(setting: Setting) -> None:
    members = [each.subscribe("i") for each in members_of(setting, "pinned")]
    setting.clock.ms += CALM_MS

    def told(instance_id: str | None, member_id: str = MEMBER) -> Any:
        return lambda member: m.ConsumerGroupHeartbeatRequest(
            group_id=member.group, member_id=member_id, member_epoch=member.epoch, instance_id=instance_id
        )

    before = setting.taken()
    good = same(setting, members, told("i"), 1)
    assert same(setting, members, told(None), 1) == good
    assert all(taken - before[way] == 2 for way, taken in setting.taken().items())
    for each in (told("other"), told(""), told("\u00fc"), told("i", "B" * 22)):
        assert same(setting, members, each, 1) != good
    assert all(taken - before[way] == 2 for way, taken in setting.taken().items())
    for member in members:
        member.close()


def test_heartbeats_of_share_groups(setting: Setting) -> None:
    members = members_of(setting, "shares")

    def told(epoch: int = 0, member_id: str = MEMBER, **more: Any) -> Any:
        return lambda member: m.ShareGroupHeartbeatRequest(
            **{"group_id": member.group, "member_id": member_id, "member_epoch": member.epoch + epoch} | more
        )

    def is_settled(member: Member) -> bool:
        """Whether its topic is initialized, and assigned: the last heartbeat changed nothing."""
        answer = member.answer(told()(member), 1)
        member.epoch = answer.member_epoch
        setting.clock.ms += CALM_MS
        group: Any = setting.group(member.group)
        return group.settled is not None and not group.writes.is_busy

    for member in members:
        joined = member.answer(
            m.ShareGroupHeartbeatRequest(
                group_id=member.group, member_id=MEMBER, member_epoch=0, subscribed_topic_names=["some"]
            ),
            1,
        )
        assert joined.error_code == 0
        member.epoch = joined.member_epoch
        eventually(partial(is_settled, member))
    before = setting.taken()
    good = same(setting, members, told(), 1)
    assert same(setting, members, told(), 1) == good
    assert all(taken - before[way] == 2 for way, taken in setting.taken().items())
    for each in (told(1), told(0, "who"), told(0, ""), told(0, "A" * 37), told(group_id="nowhere"), told(group_id="")):
        assert same(setting, members, each, 1) != good
    same(setting, members, told(-1), 1)
    same(setting, members, told(rack_id="r"), 1)
    same(setting, members, told(subscribed_topic_names=["some"]), 1)
    same(setting, members, told(), 1, client="another")
    assert all(taken - before[way] == 2 for way, taken in setting.taken().items())
    for member in members:
        member.close()


def test_a_member_that_is_to_learn_something_hears_it(setting: Setting) -> None:
    members = [each.subscribe() for each in members_of(setting, "learns")]
    setting.clock.ms += CALM_MS

    def told(member: Member) -> m.ConsumerGroupHeartbeatRequest:
        return m.ConsumerGroupHeartbeatRequest(group_id=member.group, member_id=MEMBER, member_epoch=member.epoch)

    before = setting.taken()
    quiet = same(setting, members, told, 1)
    for member in members:  # another member joins, so that this one has to give up partitions
        joining = m.ConsumerGroupHeartbeatRequest(
            group_id=member.group, member_id="B" * 22, member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=["some"], topic_partitions=[],
        )  # fmt: skip
        assert member.answer(joining, 1).error_code == 0
    assert same(setting, members, told, 1) != quiet
    assert all(taken - before[way] == 1 for way, taken in setting.taken().items())
    for member in members:
        member.close()


def test_a_member_hears_that_its_group_rebalances(setting: Setting) -> None:
    members = [each.join() for each in members_of(setting, "rebalances")]
    good = same(setting, members, beat(), 4)
    others = members_of(setting, "rebalances")
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"x")
    for other in others:
        joining = m.JoinGroupRequest(
            group_id=other.group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=45_000, protocol_type="consumer",
            protocols=[protocol],
        )  # fmt: skip
        other.send(joining, 3)
    eventually(lambda: all(setting.group(each.group).overview().state == "PreparingRebalance" for each in members))  # type: ignore[union-attr]
    before = setting.taken()
    assert same(setting, members, beat(), 4) != good
    same(setting, members, commit_of([("some", [(0, 3, -1, "")])]), 8)
    assert [taken - before[way] for way, taken in setting.taken().items()] == [1, 1], "the commit is allowed"
    for each in (*members, *others):
        each.close()


Rows = list[tuple[str, list[tuple[int, int, int, str | None]]]]


def commit_of(rows: Rows, epoch: int = 0, member_id: str | None = None, **more: Any) -> Any:
    """An OffsetCommit of rows of a partition, an offset, a leader epoch, and metadata."""

    def make(member: Member) -> m.OffsetCommitRequest:
        topics = [
            Topic(
                name=name,
                topic_id=member.setting.ids.get(name, b"?" * 16),
                partitions=[
                    Partition(
                        partition_index=index, committed_offset=offset, committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset, leader_epoch, metadata in parts
                ],
            )
            for name, parts in rows
        ]  # fmt: skip
        told: dict[str, Any] = {
            "group_id": member.group,
            "generation_id_or_member_epoch": member.epoch + epoch,
            "member_id": member.member_id if member_id is None else member_id,
            "topics": topics,
        }
        return m.OffsetCommitRequest(**told | more)

    return make


def drawn(chance: random.Random) -> Rows:
    names = sorted(chance.sample(sorted(TOPICS), chance.choice((1, 1, 2))))
    found: Rows = []
    for name in names:
        numbers = chance.sample(range(TOPICS[name]), chance.randint(1, TOPICS[name]))
        found.append(
            (
                name,
                [
                    (
                        number,
                        chance.choice((-1, 0, 5, 1 << 40)),
                        chance.choice((-1, 0, 3)),
                        chance.choice((None, "", "x", "y" * 50)),
                    )
                    for number in numbers
                ],
            )
        )
    return found


@pytest.mark.parametrize("version", range(11))
def test_commits_of_all_kinds_of_members(
    setting: Setting, classic: list[Member], new: list[Member], version: int
) -> None:
    chance, before = random.Random(version), setting.taken()
    for _ in range(8):
        rows = drawn(chance)
        if version < 6:
            rows = [(name, [(index, offset, -1, text) for index, offset, _, text in parts]) for name, parts in rows]
        same(setting, classic, commit_of(rows), version)
        same(setting, new, commit_of(rows), version)
    for way, taken in setting.taken().items():
        expected = 0 if version < 2 else 8 if version < 9 else 16
        assert taken - before[way] == expected, f"the {way} way was not gone"


@pytest.mark.parametrize("version", [2, 7, 8, 9, 10])
def test_commits_that_are_refused_or_not_plain(
    setting: Setting, classic: list[Member], static: list[Member], new: list[Member], version: int
) -> None:
    one: Rows = [("some", [(0, 4, -1, "")])]
    before = setting.taken()
    for members in (classic, new):
        for each in (
            commit_of(one, 1),
            commit_of(one, -1),
            commit_of(one, 0, "who"),
            commit_of(one, 0, ""),
            commit_of(one, 0, "", generation_id_or_member_epoch=-1),
            commit_of(one, group_id="nowhere"),
            commit_of([("some", [(0, 4, -1, "x" * 51)])]),
            commit_of([("some", [(0, 4, -1, "")]), ("other", [(1, 4, -1, "x" * 51)])]),
            commit_of([("some", [(9, 4, -1, "")])]),
            commit_of([("some", [(-1, 4, -1, "")])]),
            commit_of([("nowhere", [(0, 4, -1, "")])]),
            commit_of([("some", [(0, 4, -1, ""), (0, 5, -1, "")])]),
            commit_of([("some", [(0, 4, -1, "")]), ("some", [(1, 5, -1, "")])]),
            commit_of([("some", [(0, 4, -1, "\u00fc")])]),
            commit_of([]),
            commit_of([("some", [])]),
            *([commit_of(one, retention_time_ms=5)] if version <= 4 else []),
            *([commit_of(one, group_instance_id="i")] if version >= 7 and members is classic else []),
        ):
            same(setting, members, each, version)
    taken = {way: taken - before[way] for way, taken in setting.taken().items()}
    assert taken["compiled"] == taken["uncompiled"] <= 1, "KIP-848 allows an earlier epoch of the assignment"
    if version >= 7:
        before = setting.taken()
        same(setting, static, commit_of(one, group_instance_id="instance"), version)
        assert all(taken - before[way] == 1 for way, taken in setting.taken().items())


@pytest.mark.parametrize("version", [2, 8, 10])
def test_a_simple_consumer_commits_in_a_group_without_members(setting: Setting, version: int) -> None:
    members = members_of(setting, f"simple{version}")
    before = setting.taken()
    for number in range(3):
        same(setting, members, commit_of([("some", [(0, number, -1, "")])]), version)
    assert all(taken - before[way] == 2 for way, taken in setting.taken().items()), "the first creates the group"
    for member in members:
        member.close()


def test_a_commit_that_the_log_cannot_take_at_once_takes_the_general_way(
    setting: Setting, classic: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = setting.taken()
    monkeypatch.setattr(setting.log.active.records, "plain_fd", -1)
    same(setting, classic, commit_of([("other", [(0, 77, -1, "")])]), 8)

    def fails(*_arguments: Any, **_how: Any) -> object:
        raise StorageError("no space")

    monkeypatch.setattr(appending, "append", fails)
    answer = same(setting, classic, commit_of([("other", [(0, 78, -1, "")])]), 8)
    response, _ = m.OffsetCommitResponse.decode(8, memoryview(answer), 5)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert setting.taken() == before
    for member in classic:
        group = setting.group(member.group)
        assert group is not None
        assert {key.topic: each.offset for key, each in group.offsets.committed.items() if key.partition == 0}[
            "other"
        ] == 77


def test_rules_of_access_and_quotas_are_not_passed_by(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member(setting, "general", "ruled").join()
    frame = write_request_header(m.HeartbeatRequest.API_KEY, 4, 7, "me") + beat()(member).encode(4)
    octets = memoryview(bytearray(frame))

    def end_of_answer() -> int:
        return int(setting.shortcuts["uncompiled"].plain.answer(None, octets, 0, len(octets), 0))

    assert end_of_answer() > 0
    with monkeypatch.context() as patch:
        patch.setattr(setting.services.admission, "has_rules", True)
        assert end_of_answer() == 0
    with monkeypatch.context() as patch:
        patch.setattr(setting.services.throttling, "is_active", True)
        assert end_of_answer() == 0
    member.close()


def test_requests_that_were_sent_together_are_answered_in_order(setting: Setting) -> None:
    member = Member(setting, "compiled", "together").join()
    frames = []
    for number in range(200):
        request = beat()(member) if number % 3 else commit_of([("some", [(0, number, -1, "")])])(member)
        body = write_request_header(request.API_KEY, 4, number, "me") + request.encode(4)
        frames.append(len(body).to_bytes(4, "big") + body)
    member.socket.sendall(b"".join(frames))
    answers = [receive_frame(member.socket) for _ in frames]
    assert [int.from_bytes(each[:4], "big") for each in answers] == list(range(200))
    group = setting.group(member.group)
    assert group is not None
    assert group.offsets.committed["some", 0].offset == 198  # type: ignore[index]
    member.close()


def test_what_was_committed_is_there_after_a_restart() -> None:
    fetched = m.OffsetFetchRequest.OffsetFetchRequestTopics(name="some", partition_indexes=[0, 1, 2])
    fetch = m.OffsetFetchRequest(
        groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="again-0", topics=[fetched])]
    )
    with Broker(settings=SETTINGS) as broker:
        with Wire(broker.bootstrap) as wire:
            assert wire.create_topic("some", 3) == 0
            has_coordinator(wire)
        found = dispatcher_of(broker)
        shortcut = found.shortcut
        assert isinstance(shortcut, Shortcuts)
        setting = Setting(broker, found, {"compiled": shortcut}, {}, Clock())
        member = Member(setting, "compiled", "again")
        for offset in (1, 2, 3):
            member.answer(commit_of([("some", [(0, offset, 5, "kept"), (2, offset, -1, None)])])(member), 8)
        assert shortcut.groups.taken == 2
        before = member.ask(fetch, 8)
        member.close()
        broker.stop()
        broker.start()
        with Wire(broker.bootstrap) as wire:
            has_coordinator(wire)
        member = Member(setting, "compiled", "again")
        assert member.ask(fetch, 8) == before
        (group,) = member.answer(fetch, 8).groups
        parts = group.topics[0].partitions
        kept = [(each.committed_offset, each.committed_leader_epoch, each.metadata) for each in parts]
        assert kept == [(3, 5, "kept"), (-1, -1, ""), (3, -1, "")]
        member.close()
