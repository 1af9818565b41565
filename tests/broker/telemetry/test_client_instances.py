"""Client instances: ids, throttling by the push interval, errors in Apache Kafka's order, expiry."""

from collections.abc import Callable

import pytest

from headrace.broker.telemetry import client_instances
from headrace.broker.telemetry.client_instances import ClientInstance, ClientInstances
from headrace.broker.telemetry.subscriptions import parse_subscription
from headrace.errors import ErrorCode, KafkaError

ID, OTHER = b"i" * 16, b"o" * 16
SECOND = 1000
START = 1_000_000


class Connection:
    """One that a test can close."""

    is_closed = False

    def __init__(self, principal: str = "User:alice") -> None:
        self.principal = principal


class Broker:
    """The instances of one broker, with a subscription that asks for a push each second."""

    def __init__(self) -> None:
        self.forgotten: list[bytes] = []
        self.instances = ClientInstances(on_forget=self.forgotten.append, new_id=lambda: OTHER)
        self.subscribe("s", "a")
        self.connection = Connection()

    def subscribe(self, name: str, metrics: str) -> None:
        self.instances.subscribe(name, parse_subscription({"metrics": metrics, "interval.ms": "1000"}))

    def at(self, now_ms: int, id: bytes = ID) -> ClientInstance:
        return self.instances.instance(id, {}, self.connection, START + now_ms)

    def get(self, now_ms: int) -> ClientInstance:
        found = self.at(now_ms)
        found.check_get(START + now_ms)
        found.last_error = ErrorCode.NONE
        return found

    def push(
        self, now_ms: int, subscription_id: int | None = None, *, codec: int = 0, size: int = 0, ends: bool = False
    ) -> None:
        found = self.at(now_ms)
        asked = found.subscription_id if subscription_id is None else subscription_id
        try:
            found.check_push(START + now_ms, subscription_id=asked, codec=codec, size=size, max_size=100, ends=ends)
        except KafkaError as error:
            found.last_error = error.code
            raise
        finally:
            found.is_terminating = ends


def code_of(call: Callable[[], object]) -> ErrorCode:
    try:
        call()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_a_client_without_an_id_gets_one() -> None:
    assert Broker().at(0, bytes(16)).id == OTHER


def test_every_broker_computes_the_same_id_of_a_subscription() -> None:
    one, other = Broker(), Broker()
    assert one.get(0).subscription_id == other.get(0).subscription_id
    other.subscribe("t", "b")
    assert one.get(SECOND).subscription_id != other.get(SECOND).subscription_id


def test_a_push_may_follow_its_get_at_once_and_the_next_one_after_the_interval() -> None:
    broker = Broker()
    broker.get(0)
    broker.push(1)
    assert code_of(lambda: broker.push(SECOND)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.push(1 + SECOND)
    assert code_of(lambda: broker.get(2 + SECOND)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_last_push_is_not_throttled_and_ends_all_others() -> None:
    broker = Broker()
    broker.get(0)
    broker.push(1)
    broker.push(2, ends=True)
    assert code_of(lambda: broker.push(5 * SECOND)) is ErrorCode.INVALID_REQUEST


def test_a_changed_subscription_is_told_at_once() -> None:
    broker = Broker()
    known = broker.get(0).subscription_id
    broker.subscribe("t", "b")
    assert code_of(lambda: broker.push(1, known)) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert broker.get(2).wanted.metrics == ("a", "b")
    broker.instances.subscribe("t", None)
    assert broker.get(3).wanted.metrics == ("a",)


def test_errors_that_tell_a_client_to_ask_again_do_not_throttle_it() -> None:
    broker = Broker()
    broker.get(0)
    assert code_of(lambda: broker.push(1, codec=9)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    broker.get(2)
    broker = Broker()
    broker.get(0)
    assert code_of(lambda: broker.push(1, size=101)) is ErrorCode.TELEMETRY_TOO_LARGE
    assert code_of(lambda: broker.get(2)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_client_that_connects_again_begins_anew() -> None:
    broker = Broker()
    broker.get(0)
    broker.connection.is_closed = True
    broker.connection = Connection()
    broker.get(1)


@pytest.mark.parametrize(
    ("principal", "attributes"),
    [
        ("User:mallory", {}),
        ("User:alice", {"client_source_address": "10.0.0.7"}),
        ("User:alice", {"client_id": "other"}),
    ],
)
def test_the_id_of_another_client_is_refused_and_harms_it_not(principal: str, attributes: dict[str, str]) -> None:
    """Who learns an id must not push in its client's name, use up its push interval, or say that it ends."""
    broker = Broker()
    broker.get(0)

    def pretend() -> object:
        return broker.instances.instance(ID, attributes, Connection(principal), START + 500)

    assert code_of(pretend) is ErrorCode.INVALID_REQUEST
    broker.connection.is_closed = True
    assert code_of(pretend) is ErrorCode.INVALID_REQUEST, "the client may connect again"
    broker.connection = Connection()
    assert code_of(lambda: broker.push(600)) is ErrorCode.NONE
    assert broker.at(600).last_seen_ms == START + 600


def test_a_silent_client_is_forgotten_after_three_intervals_or_a_minute() -> None:
    broker = Broker()
    broker.get(0)
    broker.instances.forget_expired(START + 60 * SECOND)
    assert ID in broker.instances
    broker.instances.forget_expired(START + 61 * SECOND)
    assert (ID in broker.instances, broker.forgotten) == (False, [ID])


def test_the_longest_silent_client_is_forgotten_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_instances, "INSTANCES_MAX", 3)
    broker = Broker()
    for number in (1, 2, 3, 1, 4):
        broker.at(number, bytes([number]) * 16)
    assert [each.id[0] for each in broker.instances] == [3, 1, 4]
    assert broker.forgotten == [b"\x02" * 16]
