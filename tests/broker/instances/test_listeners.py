"""Listeners of instances follow their definitions: with a real store and real sockets, and a stand-in dispatcher."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Never

import pytest

from headrace.broker.instances import listeners as module
from headrace.broker.instances.listeners import InstanceListeners, ListenAddress, OwnListener, address_of
from headrace.broker.instances.ways_in import WaysIn
from headrace.config import parse_broker
from headrace.instances.definition import Instance
from headrace.metadata.instance_ports import read_ports
from headrace.metadata.stored_instances import StoredInstances
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import MetadataStore
from headrace.network.connection import Connection, Dispatch
from headrace.network.server import Server
from headrace.types import BrokerId
from tests.eventually import eventually_async
from tests.network.echo_server import LOOPBACK, Peer, echo, echo_server

ID = "AAAAAAAAAAAAAAAAAAAAAQ"
ONE = BrokerId(1)
OTHER = "127.0.0.2"


class Hosted:
    """A broker that serves instances by echoing."""

    def __init__(self, store: MetadataStore, instances: StoredInstances, server: Server, host: str) -> None:
        self.store, self.instances, self.server = store, instances, server
        self.listeners = InstanceListeners(
            instances,
            store,
            server,
            ONE,
            OwnListener(host, "kafka.example"),
            self._find,
            WaysIn(_NoSecurity(), None, server, ONE),
        )

    def _find(self, name: str) -> Dispatch | None:
        def answer(connection: Connection, frame: memoryview) -> None:
            echo(connection, f"{name} {connection.principal} ".encode() + bytes(frame))

        return answer if self.instances.get(name) is not None else None

    async def port(self, name: str, differs_from: int = 0) -> int:
        """The published port of an instance."""

        def found() -> int:
            port = self.instances.endpoints().get(name, {}).get(ONE, ("", 0))[1]
            return 0 if port == differs_from else port

        await eventually_async(found, f"the listener of {name}")
        return found()

    async def gone(self, name: str) -> None:
        """Waits until nothing is published of an instance."""
        await eventually_async(lambda: name not in self.instances.endpoints(), f"{name} to be gone")


class _NoSecurity:
    """Of a broker without TLS and SASL."""

    settings = parse_broker({"listeners": "127.0.0.1:0", "log.dirs": "/nowhere"})

    async def tls(self) -> Never:
        raise AssertionError

    def authentication(self) -> Never:
        raise AssertionError

    async def mechanisms(self, _: str, *, is_for_instances: bool) -> Never:
        raise AssertionError


@asynccontextmanager
async def hosted(directory: Path, host: str = LOOPBACK) -> AsyncIterator[Hosted]:
    store = await EmbeddedStore.open(directory)
    instances = StoredInstances(store)
    await instances.start()
    async with echo_server() as (server, _):
        found = Hosted(store, instances, server, host)
        found.listeners.start()
        try:
            yield found
        finally:
            await found.listeners.close()
            await instances.close()
            await store.close()


async def answer(port: int, local: str | None = None) -> bytes:
    peer = await Peer.at(port, local=local)
    try:
        return await peer.ask()
    finally:
        peer.reset()


def test_an_instance_is_served_from_its_creation_to_its_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path) as broker:
            await broker.instances.create(Instance("acme", ID))
            port = await broker.port("acme")
            assert broker.instances.endpoints() == {"acme": {ONE: ("kafka.example", port)}}
            peer = await Peer.at(port)
            assert await peer.ask() == b"acme User:acme.ANONYMOUS hello"

            await broker.instances.change("acme", lambda each: each.altered({"state": "deleting"}))
            await broker.gone("acme")
            assert await peer.receive() == b""
            with pytest.raises(ConnectionError):
                await Peer.at(port)

            await broker.instances.change("acme", lambda each: each.altered({"state": "active"}))
            assert await broker.port("acme") == port, "the port is remembered"
            assert await answer(port) == b"acme User:acme.ANONYMOUS hello"

            await broker.instances.change("acme", lambda _: None)
            await broker.gone("acme")
            await eventually_async(lambda: not broker.listeners.visitors, "the clients to be forgotten")
            assert broker.server._of_instances == {}
            assert list(broker.server._entrances) == ["PLAINTEXT"]

            async def stored() -> bool:
                return await read_ports(broker.store, ONE) == {}

            await eventually_async(stored, "the port to be forgotten")

    asyncio.run(run())


def test_a_port_stays_the_same_over_a_restart_unless_somebody_else_has_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path) as broker:
            for name in ("acme", "zeta"):
                await broker.instances.create(Instance(name, ID))
            acme, zeta = await broker.port("acme"), await broker.port("zeta")

            async def stored() -> bool:
                return await read_ports(broker.store, ONE) == {"acme": acme, "zeta": zeta}

            await eventually_async(stored, "the ports to be stored")
        with socket.create_server((LOOPBACK, zeta)):
            async with hosted(tmp_path) as broker:
                assert await broker.port("acme") == acme
                assert await broker.port("zeta") != zeta
                assert await answer(await broker.port("zeta")) == b"zeta User:zeta.ANONYMOUS hello"

    asyncio.run(run())


def test_a_listener_moves_when_its_definition_does(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path) as broker:
            await broker.instances.create(Instance("acme", ID))
            first = await broker.port("acme")
            peer = await Peer.at(first)
            assert await peer.ask() == b"acme User:acme.ANONYMOUS hello"
            with socket.create_server((LOOPBACK, 0)) as reserved:
                wanted = reserved.getsockname()[1]
            await broker.instances.change("acme", lambda each: each.altered({"port": wanted}))
            assert await broker.port("acme", first) == wanted
            assert await peer.ask() == b"acme User:acme.ANONYMOUS hello", "open connections stay"
            with pytest.raises(ConnectionError):
                await Peer.at(first)

            await broker.instances.change("acme", lambda each: each.altered({"addresses": ["1=a.example:9", "2=b:1"]}))
            await eventually_async(
                lambda: broker.instances.endpoints()["acme"] == {ONE: ("a.example", 9)}, "the other address"
            )
            assert await answer(wanted) == b"acme User:acme.ANONYMOUS hello"

            await broker.instances.change("acme", lambda each: each.altered({"port": None}))
            await broker.gone("acme")
            await broker.instances.change("acme", lambda each: each.altered({"addresses": [], "port": wanted}))
            assert await broker.port("acme") == wanted

    asyncio.run(run())


def test_a_port_in_use_is_tried_again_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY_FIRST_S", 0.02)

    async def run() -> None:
        async with hosted(tmp_path) as broker:
            with socket.create_server((LOOPBACK, 0)) as taken:
                port = taken.getsockname()[1]
                await broker.instances.create(Instance("acme", ID, port=port))
                await broker.instances.create(Instance("zeta", ID))
                assert await answer(await broker.port("zeta")) == b"zeta User:zeta.ANONYMOUS hello"
                await eventually_async(lambda: caplog.text.count("cannot listen") > 1, "two tries")
                assert "acme" not in broker.instances.endpoints()
                assert "headrace instance alter acme --port N" in caplog.text
            assert await broker.port("acme") == port

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())


def test_a_change_of_the_list_reaches_connections_and_limits(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path) as broker:
            await broker.instances.create(Instance("acme", ID, connections_max=2))
            port = await broker.port("acme")
            stays, goes = await Peer.at(port), await Peer.at(port, local=OTHER)
            assert await stays.ask() == await goes.ask() == b"acme User:acme.ANONYMOUS hello"
            assert await answer(port) == b"", "there are two"
            many = [f"10.{n >> 8}.{n & 255}.0/24" for n in range(600)]
            await broker.instances.change("acme", lambda each: each.altered({"deny": [*many, OTHER]}))
            assert await goes.receive() == b""
            assert await answer(port, OTHER) == b""
            assert await stays.ask() == b"acme User:acme.ANONYMOUS hello"
            assert broker.listeners.visitors["acme"].refused == {"connections_max": 1, "address": 1}
            await broker.instances.change("acme", lambda each: each.altered({"deny": [], "connections_max": None}))
            await eventually_async(lambda: broker.listeners.visitors["acme"].allows(OTHER), "the list to be empty")
            assert await answer(port, OTHER) == b"acme User:acme.ANONYMOUS hello"

    asyncio.run(run())


def test_an_instance_made_anew_has_none_of_the_connections_of_the_one_before(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path) as broker:
            await broker.instances.create(Instance("acme", ID))
            peer = await Peer.at(await broker.port("acme"))
            assert await peer.ask() == b"acme User:acme.ANONYMOUS hello"
            await broker.instances.change("acme", lambda _: None)
            await broker.instances.create(Instance("acme", ID[:-1] + "g"))
            assert await peer.receive() == b""
            await eventually_async(lambda: "acme" in broker.server._entrances, "the new listener")
            assert await answer(broker.listeners._served["acme"].port) == b"acme User:acme.ANONYMOUS hello"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, ListenAddress("", 0, "kafka.example", 0, "PLAINTEXT")),
        ({"port": None}, None),
        ({"port": 9}, ListenAddress("", 9, "kafka.example", 0, "PLAINTEXT")),
        ({"addresses": ["2=b:7"]}, ListenAddress("", 0, "kafka.example", 0, "PLAINTEXT")),
        ({"addresses": ["1=b:7"]}, ListenAddress("", 7, "b", 7, "PLAINTEXT")),
        ({"port": 9, "addresses": ["1=b:7"]}, ListenAddress("", 9, "b", 7, "PLAINTEXT")),
        ({"addresses": ["1=10.0.0.1:7"]}, ListenAddress("10.0.0.1", 7, "10.0.0.1", 7, "PLAINTEXT")),
        ({"addresses": ["1=[::1]:7"], "protocol": "SSL"}, ListenAddress("::1", 7, "::1", 7, "SSL")),
    ],
)
def test_where_a_broker_listens(settings: dict[str, object], found: ListenAddress | None) -> None:
    assert address_of(Instance("acme", ID).altered(settings), ONE, OwnListener("", "kafka.example")) == found


def test_an_address_that_is_not_of_this_machine_is_advertised_and_not_bound(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path) as broker:
            with socket.create_server((LOOPBACK, 0)) as reserved:
                port = reserved.getsockname()[1]
            await broker.instances.create(Instance("acme", ID, port=port, addresses=("1=192.0.2.9:9000",)))
            await broker.instances.create(Instance("zeta", ID, port=port, addresses=(f"1={OTHER}:{port}",)))
            assert await broker.port("acme") == 9000
            assert await answer(port) == b"acme User:acme.ANONYMOUS hello"
            assert await broker.port("zeta") == port
            peer = await Peer.at(port, host=OTHER)
            assert await peer.ask() == b"zeta User:zeta.ANONYMOUS hello"

    asyncio.run(run())


def test_a_listener_that_strangers_could_use_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY_FIRST_S", 0.02)

    async def run() -> None:
        async with hosted(tmp_path, "0.0.0.0") as broker:
            await broker.instances.create(Instance("acme", ID))
            await eventually_async(lambda: "authenticates nobody" in caplog.text, "a line in the log")
            assert broker.instances.endpoints() == {}
            await broker.instances.change("acme", lambda each: each.altered({"allow": ["127.0.0.1"]}))
            port = await broker.port("acme")
            assert await answer(port) == b"acme User:acme.ANONYMOUS hello"
            assert await answer(port, OTHER) == b""
            await broker.instances.change("acme", lambda each: each.altered({"allow": []}))
            await broker.gone("acme")

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())


def test_many_instances_are_opened_in_slices(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path) as broker:
            loop = asyncio.get_running_loop()
            instances = [Instance(f"i{number}", ID) for number in range(100)]
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            broker.instances._known = {each.name: each for each in instances}
            counting = loop.create_task(count())
            for each in instances:
                broker.listeners._look_at(each.name)
            before = turns
            await eventually_async(lambda: len(broker.instances.endpoints()) == 100, "all to be published", every_s=0)
            counting.cancel()
            assert turns - before >= 10

    asyncio.run(run())
