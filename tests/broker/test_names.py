"""Names that clients choose: what becomes a directory is checked, and what reaches the log cannot forge lines of it."""

import struct
from collections.abc import Iterator

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import write_request_header
from tests.broker.siege import Bystander, assert_unharmed
from tests.harness import HeadraceServer, receive_frame, tail
from tests.wire import FETCH, METADATA, Wire, batch, fetch_request, string

FORGED = "2026-01-01 00:00:00,000 CRITICAL headrace: the disk is on fire"
NASTY = [
    f"line\n{FORGED}",
    "esc\x1b[2J\x1b[31mred",
    "right\u202eto left\u2066",
    "nul\0",
    "\x85next line\u2028",
    "\u200b",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    """One broker for the file."""
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    running = HeadraceServer(tmp_path_factory.mktemp("names") / "data", settings).start()
    with Bystander(running.bootstrap):
        yield running
    assert_unharmed(running)


@pytest.mark.parametrize(
    "name",
    ["..", ".", "", "a" * 250, "../../etc/passwd", "/etc", "a/b", "a\0b", "%2e%2e", "tоpic", "ａ", "a b", *NASTY],
    ids=lambda name: ascii(name)[:20],
)
def test_a_name_that_is_no_topic_name_makes_no_directory(server: HeadraceServer, name: str) -> None:
    before = sorted(each.name for each in server.data.iterdir())
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic(name) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert wire.produce(name, batch([b"x"])).error_code != 0
        assert wire.fetch(name, 0, max_wait_ms=0).error_code != 0
        wire.ask(METADATA, 1, struct.pack(">i", 1) + string(name))  # which makes topics by default
    assert sorted(each.name for each in server.data.iterdir()) == before
    assert sorted(each.name for each in server.data.parent.iterdir()) == ["data", "data.stderr"]


def test_names_that_metrics_could_not_tell_apart_are_not_both_allowed(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("same.name") == 0
        assert wire.create_topic("same_name") == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert wire.create_topic("same.name.longer") == 0
        assert wire.create_topic("a" * 249) == 0


@pytest.mark.parametrize("name", NASTY, ids=lambda name: ascii(name)[:20])
def test_names_in_the_log_are_on_one_line_and_printable(server: HeadraceServer, name: str) -> None:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    join = m.JoinGroupRequest(
        group_id=name, session_timeout_ms=6_000, rebalance_timeout_ms=6_000, protocol_type="consumer",
        protocols=[protocol], reason=f"because {name}",
    )  # fmt: skip
    before = len(tail(server.stderr_file, 1 << 24))
    with Wire(server.bootstrap) as wire:
        request = write_request_header(ApiKey.JOIN_GROUP, 8, 1, name) + join.encode(8)
        wire.socket.sendall(struct.pack(">i", len(request)) + request)
        receive_frame(wire.socket)
    said = tail(server.stderr_file, 1 << 24)[before:]
    assert ascii(name)[1:-1].split("\\")[0] in said, "the log tells of it"
    assert all(line.isprintable() for line in said.split("\n"))
    assert not any(line.startswith(FORGED) for line in said.splitlines())


def test_a_name_of_30_000_letters_is_cut_in_the_log(server: HeadraceServer) -> None:
    before = server.stderr_file.stat().st_size
    with Wire(server.bootstrap) as wire:
        leave = m.LeaveGroupRequest.MemberIdentity(member_id="m" * 30_000, reason="x")
        request = m.LeaveGroupRequest(group_id="g", members=[leave]).encode(5)
        head = write_request_header(ApiKey.LEAVE_GROUP, 5, 1, "c" * 30_000)
        wire.socket.sendall(struct.pack(">i", len(head) + len(request)) + head + request)
        receive_frame(wire.socket)
    assert 0 < server.stderr_file.stat().st_size - before < 10_000


def test_a_client_is_no_replica(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("followed") == 0
        assert wire.produce("followed", batch([b"x"])) == (0, 0)
        request = struct.pack(">i", 1) + fetch_request("followed", 0)[4:]
        answer = wire.ask(FETCH, 4, request)
        (error_code,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len("followed") + 4 + 4)
        assert error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert wire.fetch("followed", 0).error_code == 0


def test_nobody_but_the_coordinator_writes_committed_offsets(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        wire.ask(METADATA, 1, struct.pack(">i", 1) + string("__consumer_offsets"))
        end = wire.list_offset("__consumer_offsets", -1)
        assert end[0] == 0
        refused = wire.produce("__consumer_offsets", batch([b"forged"], keys=[b"key"]))
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert wire.list_offset("__consumer_offsets", -1) == end


@pytest.mark.parametrize("api_key", [ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA])
def test_what_brokers_ask_each_other_is_not_for_clients(server: HeadraceServer, api_key: ApiKey) -> None:
    with Wire(server.bootstrap) as wire:
        wire.send(api_key, 0, bytes(64))
        assert int.from_bytes(wire.receive()[1][:2], "big") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
