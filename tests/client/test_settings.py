"""Addresses, waits and versions: small things that every call stands on."""

import pytest

from headrace.client.core.settings import Address, parse_addresses
from headrace.client.core.timing import Backoff, Deadline
from headrace.client.core.versions import SPOKEN, BrokerVersions
from headrace.errors import UnsupportedVersion
from headrace.protocol.apis import ApiKey


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [Address("localhost", 9092)]),
        ("a:1, b:2,", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9092", [Address("::1", 9092)]),
        ("PLAINTEXT://host:1", [Address("host", 1)]),
    ],
)
def test_addresses_are_read(text: str, expected: list[Address]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "host:٣"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_addresses(text)


def test_a_listener_s_name_before_an_address_is_left_out_and_an_address_of_the_web_refused() -> None:
    assert parse_addresses("SASL_SSL://host:1, external://[::1]:2") == [Address("host", 1), Address("::1", 2)]
    with pytest.raises(ValueError, match=r"'http://host:1' is one of the web: give HOST:PORT"):
        parse_addresses("http://host:1")


def test_a_time_out_that_is_no_number_is_named() -> None:
    with pytest.raises(TypeError, match=r"the time-out '1' is a str: give a number of milliseconds"):
        Deadline.after_ms("1")  # type: ignore[arg-type]


def test_an_ipv6_address_is_printed_in_brackets() -> None:
    assert str(Address("::1", 9)) == "[::1]:9"


def test_backoff_grows_to_its_bound_and_starts_again() -> None:
    backoff = Backoff(100, 1000)
    waits = [backoff.next_ms() for _ in range(100)]
    for wait, plain in zip(waits, [100, 200, 400, 800, *[1000] * 96], strict=True):
        assert plain * 0.8 <= wait <= plain * 1.2
    backoff.reset()
    assert backoff.next_ms() <= 120


def test_a_deadline_never_has_negative_time() -> None:
    deadline = Deadline.after_ms(-5)
    assert deadline.expired and deadline.remaining_s == 0.0


def test_the_highest_common_version_is_spoken() -> None:
    versions = BrokerVersions("b", {ApiKey.FETCH: (0, 17), ApiKey.PRODUCE: (0, 7)})
    assert versions.choose(ApiKey.FETCH) == SPOKEN[ApiKey.FETCH][1]
    assert versions.choose(ApiKey.PRODUCE) == 7
    assert versions.choose(ApiKey.PRODUCE, newest=5) == 5


@pytest.mark.parametrize("served", [{}, {ApiKey.FETCH: (0, 3)}, {ApiKey.FETCH: (90, 99)}])
def test_a_broker_without_a_common_version_is_named(served: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(UnsupportedVersion, match=r"old-broker.*FETCH"):
        BrokerVersions("old-broker", served).choose(ApiKey.FETCH)
