"""Several listeners: a client is told of the address of the listener that it came in by."""

from pathlib import Path

import pytest

from headrace.broker.app import running
from headrace.broker.options import StartRefused
from headrace.config import BrokerConfig, parse_broker
from headrace.errors import InvalidConfig
from headrace.network.listeners import Listener, endpoints, parse_listener, parse_protocols
from headrace.protocol import messages as m
from tests.asker import Asker

PROTOCOLS = parse_protocols(BrokerConfig().listener_security_protocol_map)


def config(directory: Path, **settings: str) -> BrokerConfig:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return parse_broker(
        {"log.dirs": str(directory), "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,SSL:SSL"} | named
    )


async def test_a_client_is_told_of_the_listener_it_came_in_by(tmp_path: Path) -> None:
    told = config(
        tmp_path,
        listeners="IN://127.0.0.1:0,OUT://127.0.0.1:0",
        advertised_listeners="OUT://outside.example:7000,IN://127.0.0.1:0",
    )
    async with running(told) as (_, listeners):
        assert [each.name for each in listeners] == ["IN", "OUT"]
        inside, outside = (f"{each.host}:{each.port}" for each in listeners)
        assert await addresses(inside) == [("127.0.0.1", listeners[0].port)] * 3
        assert await addresses(outside) == [("outside.example", 7000)] * 3


async def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """The only broker's address as Metadata, DescribeCluster and FindCoordinator have it."""
    import asyncio

    return await asyncio.to_thread(_addresses, bootstrap)


def _addresses(bootstrap: str) -> list[tuple[str, int]]:
    with Asker(bootstrap) as asker:
        (broker,) = asker.ask(m.MetadataRequest(topics=[]), 9).brokers
        (described,) = asker.ask(m.DescribeClusterRequest(), 0).brokers
        coordinator = asker.ask(m.FindCoordinatorRequest(key="group"), 2)
    return [(each.host, each.port) for each in (broker, described, coordinator)]


@pytest.mark.parametrize(
    ("listeners", "advertised", "says"),
    [
        ("IN://127.0.0.1:0,IN://127.0.0.1:0", "", "uses a name twice"),
        ("ELSE://127.0.0.1:0", "", "listener.security.protocol.map"),
        ("IN://127.0.0.1:0", "OUT://host:1", "listeners has no OUT"),
        ("IN://127.0.0.1:0,OUT://127.0.0.1:0", "OUT://host:1", "no entry for listener IN"),
        ("IN://0.0.0.0:0", "", "set advertised.listeners"),
        ("SSL://127.0.0.1:0", "", "listener SSL: .*set ssl.keystore.location"),
    ],
)
async def test_what_does_not_fit_together_is_refused(
    tmp_path: Path, listeners: str, advertised: str, says: str
) -> None:
    with pytest.raises(StartRefused, match=says):
        async with running(config(tmp_path, listeners=listeners, advertised_listeners=advertised)):
            pass


@pytest.mark.parametrize("entry", ["IN", "IN:", ":PLAINTEXT"])
def test_a_map_that_cannot_be_read_is_refused(entry: str) -> None:
    with pytest.raises(InvalidConfig, match="is not NAME:PROTOCOL"):
        parse_protocols([entry])


def test_an_ipv6_address_stands_in_brackets() -> None:
    listener = parse_listener("[::1]:9092", PROTOCOLS)
    assert listener == Listener("PLAINTEXT", "::1", 9092)
    assert str(listener) == "PLAINTEXT://[::1]:9092"
    assert endpoints([listener], [], PROTOCOLS)[0].host == "::1"


def test_a_listener_on_every_address_is_told_as_the_name_of_the_machine() -> None:
    listener = parse_listener("PLAINTEXT://:9092", PROTOCOLS)
    assert listener == Listener("PLAINTEXT", "", 9092)
    (told,) = endpoints([listener], [], PROTOCOLS, lambda: "kafka1.example")
    assert (told.host, told.port) == ("kafka1.example", 9092)
    (told,) = endpoints([listener], ["PLAINTEXT://:7000"], PROTOCOLS, lambda: "kafka1.example")
    assert (told.host, told.port) == ("kafka1.example", 7000)


async def test_a_listener_on_every_address_is_reached_at_one(tmp_path: Path) -> None:
    told = config(tmp_path, listeners="IN://:0", advertised_listeners="IN://inside.example:7000")
    async with running(told) as (_, (listener,)):
        assert await addresses(f"127.0.0.1:{listener.port}") == [("inside.example", 7000)] * 3
