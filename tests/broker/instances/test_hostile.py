"""A hostile client of one instance asks for what others have by detours: rules for everybody, bytes that only the
broker reads, lists, and settings that other programs of the operator obey."""

import gzip
import struct
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from random import Random
from typing import Any

import crc32c
import pytest

from headrace.broker.fair_threads import FairThreads
from headrace.broker.fetch import old_fetch
from headrace.broker.handlers import produce as produce_handler
from headrace.broker.instances.flow_throttling import GROUP_BYTES_MIN
from headrace.coordinators.groups.classic.group import ClassicGroup
from headrace.errors import ErrorCode
from headrace.instances.definition import Instance
from headrace.limits import INLINE_DECOMPRESS_BYTES_MAX
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.acl_requests import create_request, rule
from tests.broker.instances.houses import Houses
from tests.eventually import eventually
from tests.wire import batch

LIMIT = 100_000
UNCOMPRESSED = {"compression.type": "uncompressed"}


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Houses]:
    instances = (
        Instance("acme", "AAAAAAAAQACAAAAAAAAAAA"),
        Instance("beta", "BBBBBBBBQBCBBBBBBBBBBA"),
        Instance("slow", "CCCCCCCCQCCCCCCCCCCCCA", bytes_in=LIMIT),
        Instance("busy", "DDDDDDDDQDCDDDDDDDDDDA", bytes_in=LIMIT),
        Instance("late", "EEEEEEEEQECEEEEEEEEEEA", bytes_out=LIMIT),
    )
    with Houses(tmp_path_factory.mktemp("hostile") / "data", instances) as found:
        yield found


def create(wire: Asker, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> ErrorCode:
    kind = m.CreateTopicsRequest
    given = [kind.CreatableTopicConfig(name=each, value=value) for each, value in (configs or {}).items()]
    wish = kind.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=given)
    return ErrorCode(wire.ask(kind(topics=[wish], timeout_ms=10_000), 7).topics[0].error_code)


def coordinated(wire: Asker, *keys: str) -> None:
    """Waits for a coordinator of each kind."""
    for kind in (0, 1):
        find = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
        eventually(lambda: not wire.ask(find, 4).coordinators[0].error_code, "a coordinator")  # noqa: B023


def test_rules_of_others_for_everybody_are_not_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An idempotent producer may start if it may write to any topic. What others let everybody do is no such topic."""
    settings = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:root"}
    instances = (
        Instance("acme", "AAAAAAAAQACAAAAAAAAAAA"),
        Instance("beta", "BBBBBBBBQBCBBBBBBBBBBA", admins=("ANONYMOUS",)),
    )
    begin = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    everybody = create_request(rule("Topic:orders", principal="User:*"), rule("Topic:orders", principal="User:carol"))
    with (
        Houses(tmp_path_factory.mktemp("rules") / "data", instances, settings) as houses,
        houses.ask("acme") as acme,
        houses.ask("beta") as beta,
    ):
        assert acme.ask(begin, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not [each for each in beta.ask(everybody, 3).results if each.error_code]
        assert acme.ask(begin, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert beta.ask(begin, 4).error_code == 0


def subscription(*topics: str) -> bytes:
    told = m.ConsumerProtocolSubscription
    return (1).to_bytes(2) + told(topics=list(topics), user_data=None, owned_partitions=[]).encode(1)


def upgraded(wire: Asker, group: str, topic: str) -> Any:
    """How a group is described whose member of the classic protocol named a topic, after one of KIP-848 has joined."""
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription("x" * 32766, topic))
    join = m.JoinGroupRequest(
        group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id="",
        protocol_type="consumer", protocols=[protocol],
    )  # fmt: skip
    joined = wire.ask(join, 3)
    assert joined.error_code == 0
    assigned = m.SyncGroupRequest.SyncGroupRequestAssignment(
        member_id=joined.member_id, assignment=struct.pack(">hii", 1, 0, -1)
    )
    sync = m.SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assigned]
    )
    assert wire.ask(sync, 3).error_code == 0
    beat = m.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=f"new-{group}", member_epoch=0, rebalance_timeout_ms=5000,
        subscribed_topic_names=["mine"], topic_partitions=[],
    )  # fmt: skip
    assert wire.ask(beat, 1).error_code == 0
    [described] = wire.ask(m.ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
    assert {each.member_type for each in described.members} == {0, 1}
    return described.error_code, described.error_message, described.group_state, described.group_epoch


def test_a_member_cannot_name_a_topic_of_others_in_bytes_that_only_the_broker_reads(houses: Houses) -> None:
    """A name of 32 KiB cannot be qualified. The names behind it are."""
    with houses.ask("acme") as wire, houses.ask("beta") as beta:
        assert create(beta, "hidden", 3) == create(wire, "mine") == ErrorCode.NONE
        coordinated(wire, "upgraded-1")
        assert upgraded(wire, "upgraded-1", "beta.hidden") == upgraded(wire, "upgraded-2", "beta.absent")


def compressed(size: int, *, chance: Random | None = None) -> bytes:
    """One record of so many zeros, or random bytes, in a batch compressed by gzip."""
    whole = batch([bytes(size) if chance is None else chance.randbytes(size)])
    body = gzip.compress(whole[61:])
    head = bytearray(whole[:61])
    head[8:12] = (61 - 12 + len(body)).to_bytes(4, "big")
    head[21:23] = (1).to_bytes(2, "big")
    head[17:21] = crc32c.crc32c(bytes(head[21:]) + body).to_bytes(4, "big")
    return bytes(head) + body


def produce(topic: str, records: bytes) -> m.ProduceRequest:
    part = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    return m.ProduceRequest(
        acks=1, timeout_ms=10_000, topic_data=[m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
    )


def test_what_is_decompressed_to_be_stored_counts_as_it_is_stored(houses: Houses) -> None:
    """A kilobyte is a megabyte in a topic that keeps nothing compressed; its client waits as for a megabyte."""
    records = compressed(1 << 20)
    assert len(records) < 2000
    with houses.ask("slow") as wire:
        assert create(wire, "as-sent") == create(wire, "larger", configs=UNCOMPRESSED) == ErrorCode.NONE
        sent = wire.ask(produce("as-sent", records), 9)
        assert sent.responses[0].partition_responses[0].error_code == sent.throttle_time_ms == 0
        stored = wire.ask(produce("larger", records), 9)
        assert stored.responses[0].partition_responses[0].error_code == 0
        assert stored.throttle_time_ms >= 1000
    flow = houses.broker.instance_flow().flows()["slow"]
    assert flow.bytes_in >= 1 << 20
    assert flow.gate_in is not None
    wait_s = flow.gate_in.bucket.wait_s(flow.now())
    assert wait_s > ((1 << 20) - LIMIT) / LIMIT * 0.5


def test_what_is_converted_for_an_old_consumer_counts_as_it_is_sent(houses: Houses) -> None:
    """An empty record has 7 bytes today, and 34 in format 1."""
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = m.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[m.FetchRequest.FetchTopic(topic="old", partitions=[part])],
    )
    with houses.ask("late") as wire:
        assert create(wire, "old", configs={"retention.ms": "-1"}) == ErrorCode.NONE
        records = batch([b""] * 500)
        assert wire.ask(produce("old", records), 9).responses[0].partition_responses[0].error_code == 0
        flow = houses.broker.instance_flow().flows()["late"]
        before = flow.bytes_out
        sent = wire.ask(fetch, 3).responses[0].partitions[0].records
        assert len(sent) > 2 * len(records)
        assert flow.bytes_out - before == len(sent)


@pytest.mark.slow
def test_commits_pass_no_more_than_a_rate(houses: Houses) -> None:
    """Their metadata is written as records are: 70 MB/s of it went by a limit of 0.1 MB/s. A new connection for each
    gains nothing, and what is produced and consumed does not wait for them."""
    partitions, commits = 180, 4
    commit = m.OffsetCommitRequest
    wide = [
        commit.OffsetCommitRequestPartition(partition_index=each, committed_offset=1, committed_metadata="x" * 4000)
        for each in range(partitions)
    ]
    topic = commit.OffsetCommitRequestTopic(name="wide", partitions=wide)
    request = commit(group_id="wide", generation_id_or_member_epoch=-1, member_id="", topics=[topic])
    size = len(request.encode(8))
    assert size > 700_000
    with houses.ask("busy") as wire:
        assert create(wire, "wide", partitions) == ErrorCode.NONE
        coordinated(wire, "wide")
        began, told = time.monotonic(), 0
        for _ in range(commits):
            with houses.ask("busy") as other:
                answer = other.ask(request, 8)
                assert answer.topics[0].partitions[-1].error_code == 0
                told += answer.throttle_time_ms > 0
        took = time.monotonic() - began
        assert told
        assert took >= ((commits - 1) * size - GROUP_BYTES_MIN) / GROUP_BYTES_MIN
        flow = houses.broker.instance_flow().flows()["busy"]
        assert flow.gate_groups is not None
        assert flow.gate_groups.throttled.count == told
        assert flow.gate_in is not None
        assert flow.gate_in.waiting_count == 0
        beat = m.HeartbeatRequest(group_id="wide", generation_id=1, member_id="nobody")
        assert wire.ask(beat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    described = houses.run(lambda: houses.broker.instance_flow().describe(["busy"]))["instances"]["busy"]  # type: ignore[index]
    assert described["groups"]["told_count"] == told  # `headrace instance why` prints it


def test_threads_for_large_batches_are_taken_in_turns(houses: Houses, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bombs of 8 KB, each within the rate, would make the large batches of all others wait."""
    owners: list[str] = []

    class Noting(FairThreads):
        def of(self, owner: str) -> Executor:
            owners.append(owner)
            return super().of(owner)

    monkeypatch.setattr(produce_handler, "_decompressing", Noting(1, "noted"))
    monkeypatch.setattr(old_fetch, "_converting", Noting(1, "noted"))
    large = compressed(200_000, chance=Random(15))
    assert len(large) > INLINE_DECOMPRESS_BYTES_MAX
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = m.FetchRequest(
        max_wait_ms=0, max_bytes=1 << 20, topics=[m.FetchRequest.FetchTopic(topic="turns", partitions=[part])]
    )
    with houses.ask("acme") as wire, Asker(houses.bootstrap) as operator:
        for each in (wire, operator):
            assert create(each, "turns", configs={"retention.ms": "-1"}) == ErrorCode.NONE
            assert each.ask(produce("turns", large), 9).responses[0].partition_responses[0].error_code == 0
            assert each.ask(fetch, 3).responses[0].partitions[0].records
    assert owners == ["acme.", "acme.", "", ""]


def test_lists_are_made_of_the_own_alone(houses: Houses, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others have is not looked at, so that the time tells nothing of it."""
    looked: list[str] = []
    overview = ClassicGroup.overview

    def seen(group: ClassicGroup) -> Any:
        looked.append(group.group_id)
        return overview(group)

    with houses.ask("acme") as wire, houses.ask("beta") as beta:
        for each, name in ((wire, "acme"), (beta, "beta")):
            create(each, "listed")
            coordinated(each, "listed")
            part = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
            topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="listed", partitions=[part])
            commit = m.OffsetCommitRequest(
                group_id="listed", generation_id_or_member_epoch=-1, member_id="", topics=[topic]
            )
            assert each.ask(commit, 8).topics[0].partitions[0].error_code == 0
            begin = m.InitProducerIdRequest(transactional_id="listed", transaction_timeout_ms=60_000)
            eventually(lambda: not each.ask(begin, 4).error_code, "a transactional id")  # noqa: B023
            scram = m.AlterUserScramCredentialsRequest
            user = scram.ScramCredentialUpsertion(
                name=f"user-of-{name}", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
            )
            assert not each.ask(scram(upsertions=[user]), 0).results[0].error_code
        monkeypatch.setattr(ClassicGroup, "overview", seen)
        assert "listed" in [each.group_id for each in wire.ask(m.ListGroupsRequest(), 4).groups]
        assert looked
        assert all(each.startswith("acme.") for each in looked)
        described = wire.ask(m.DescribeUserScramCredentialsRequest(users=None), 0)
        assert [each.user for each in described.results] == ["user-of-acme"]
        listed = wire.ask(m.ListTransactionsRequest(), 1).transaction_states
        assert [each.transactional_id for each in listed] == ["listed"]
        dirs = wire.ask(m.DescribeLogDirsRequest(topics=None), 2).results[0].topics
        assert "listed" in [each.name for each in dirs]
    transactions = houses.broker.transactions
    found = transactions.overview("acme.")[1]
    assert [each.transactional_id for each in found] == ["acme.listed"]
    assert transactions.overview("nobody.")[1] == []
    assert len(transactions.overview()[1]) == 2


def test_names_and_values_that_brokers_keep_are_not_long(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The limits say how many there may be. With 30 KB each, ten thousand rules would take 600 MB of every broker."""
    settings = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:root"}
    instance = Instance("acme", "AAAAAAAAQACAAAAAAAAAAA", admins=("ANONYMOUS",))
    quota, alter, commit = m.AlterClientQuotasRequest, m.IncrementalAlterConfigsRequest, m.OffsetCommitRequest
    part = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = commit.OffsetCommitRequestTopic(name="kept", partitions=[part])
    throttled = "follower.replication.throttled.replicas"
    with Houses(tmp_path_factory.mktemp("long") / "data", (instance,), settings) as houses, houses.ask("acme") as wire:
        assert create(wire, "kept") == ErrorCode.NONE
        coordinated(wire, "any")
        for length, wanted in ((900, ErrorCode.NONE), (1001, ErrorCode.POLICY_VIOLATION)):
            long = "x" * length
            rules = [rule(f"Group:{long}", principal="User:a"), rule("Topic:t", principal=f"User:{long}")]
            outcomes = [each.error_code for each in wire.ask(create_request(*rules), 3).results]
            for kind in ("user", "client-id"):
                entry = quota.EntryData(
                    entity=[quota.EntityData(entity_type=kind, entity_name=long)],
                    ops=[quota.OpData(key="producer_byte_rate", value=1e9)],
                )
                outcomes.append(wire.ask(quota(entries=[entry]), 1).entries[0].error_code)
            config = alter.AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")
            resource = alter.AlterConfigsResource(resource_type=32, resource_name=long, configs=[config])
            outcomes.append(wire.ask(alter(resources=[resource]), 1).responses[0].error_code)
            request = commit(group_id=long, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
            outcomes.append(wire.ask(request, 8).topics[0].partitions[0].error_code)
            begin = m.InitProducerIdRequest(transactional_id=long, transaction_timeout_ms=1000)
            eventually(lambda b=begin: wire.ask(b, 4).error_code in (0, 44), "a coordinator")  # type: ignore[misc]
            outcomes.append(wire.ask(begin, 4).error_code)
            assert outcomes == [wanted] * len(outcomes)
        listed = ",".join(["0:1"] * 10_000)
        assert create(wire, "wide", configs={throttled: listed}) == ErrorCode.POLICY_VIOLATION
        config = alter.AlterableConfig(name=throttled, config_operation=0, value=listed)
        resource = alter.AlterConfigsResource(resource_type=2, resource_name="kept", configs=[config])
        assert wire.ask(alter(resources=[resource]), 1).responses[0].error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("name", "value"),
    [("headrace.lake", '{"version": 1, "table": "/etc/headrace"}'), ("headrace.kafka07.enable", "true")],
)
def test_settings_that_programs_of_the_operator_obey_are_the_operators(houses: Houses, name: str, value: str) -> None:
    alter = m.IncrementalAlterConfigsRequest
    topic = f"owned-{name}"

    def altered(wire: Asker, qualified: str, wanted: str) -> int:
        config = alter.AlterableConfig(name=name, config_operation=0, value=wanted)
        resource = alter.AlterConfigsResource(resource_type=2, resource_name=qualified, configs=[config])
        return int(wire.ask(alter(resources=[resource]), 1).responses[0].error_code)

    with houses.ask("beta") as wire, Asker(houses.bootstrap) as operator:
        assert create(wire, topic, configs={name: value}) == ErrorCode.POLICY_VIOLATION
        assert create(wire, topic) == ErrorCode.NONE
        assert altered(wire, topic, value) == ErrorCode.POLICY_VIOLATION
        old = m.AlterConfigsRequest
        resource = old.AlterConfigsResource(
            resource_type=2, resource_name=topic, configs=[old.AlterableConfig(name=name, value=value)]
        )
        assert wire.ask(old(resources=[resource]), 2).responses[0].error_code == ErrorCode.POLICY_VIOLATION
        assert altered(operator, f"beta.{topic}", value) == ErrorCode.NONE
        assert altered(wire, topic, "" if "lake" in name else "false") == ErrorCode.NONE
