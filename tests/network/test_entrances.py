"""Listeners of instances: opened and closed while the server runs, with rules about who comes in."""

import asyncio

import pytest

from headrace.instances.address_list import AddressList, Networks
from headrace.network import proxied
from headrace.network.proxy_protocol import SIGNATURE
from tests.eventually import eventually_async
from tests.network.echo_server import EchoRoute, Peer, echo_server, open_for
from tests.network.test_proxy_protocol import header
from tests.network.test_proxy_protocol import proxied as header_of

OTHER = "127.0.0.2"


def test_a_listener_comes_and_goes_and_others_do_not_notice() -> None:
    async def run() -> None:
        async with echo_server() as (server, port):
            acme = EchoRoute("acme")
            ours = open_for(server, acme)
            plain, inside = await Peer.at(port), await Peer.at(ours)
            assert await plain.ask() == b"hello"
            assert await inside.ask() == b"acme 127.0.0.1 hello"
            assert [each.listener for each in server.connections_of("acme")] == ["acme"]
            assert server.limits.count("acme") == 1

            server.shut("acme")
            with pytest.raises(ConnectionError):
                await Peer.at(ours)
            assert await inside.ask() == b"acme 127.0.0.1 hello", "what is open stays open"
            assert open_for(server, acme, ours) == ours
            assert await (await Peer.at(ours)).ask() == b"acme 127.0.0.1 hello"

            await server.close_connections("acme", lambda _: True, "deleted")
            assert await inside.ask() == b""
            assert await plain.ask() == b"hello"
            server.shut("acme")
            assert not server.connections_of("acme")
            assert server._of_instances == {}
            assert list(server.limits._by_listener) == ["PLAINTEXT"], "nothing is kept of a listener that is gone"

    asyncio.run(run())


def test_a_port_in_use_is_an_error_that_names_it() -> None:
    async def run() -> None:
        async with echo_server() as (server, port):
            with pytest.raises(OSError, match="in use") as failed:
                open_for(server, EchoRoute("acme"), port)
            assert failed.value.filename == f"acme://127.0.0.1:{port}"
            assert open_for(server, EchoRoute("acme")) != port

    asyncio.run(run())


def test_an_address_that_is_not_allowed_is_closed_before_its_first_byte() -> None:
    async def run() -> None:
        async with echo_server() as (server, port):
            acme = EchoRoute("acme")
            acme.addresses = AddressList(deny=[OTHER])
            ours = open_for(server, acme)
            assert await (await Peer.at(ours, local=OTHER)).receive() == b""
            allowed = await Peer.at(ours)
            assert await allowed.ask() == b"acme 127.0.0.1 hello"
            assert await (await Peer.at(port, local=OTHER)).ask() == b"hello", "the list is of one instance"
            assert acme.refused == [OTHER]
            assert server.limits.count("acme") == 1

    asyncio.run(run())


def test_a_change_closes_the_connections_that_are_no_longer_allowed() -> None:
    async def run() -> None:
        async with echo_server() as (server, _):
            acme, other = EchoRoute("acme"), EchoRoute("other")
            ports = open_for(server, acme), open_for(server, other)
            peers = [await Peer.at(ports[0], local=OTHER) for _ in range(250)]
            stays, elsewhere = await Peer.at(ports[0]), await Peer.at(ports[1], local=OTHER)
            assert await asyncio.gather(*(each.ask() for each in peers)) == [b"acme 127.0.0.2 hello"] * 250
            assert await elsewhere.ask() == b"other 127.0.0.2 hello"
            acme.addresses = AddressList(deny=[OTHER])
            await server.close_connections("acme", lambda host: not acme.addresses.allows(host), "not allowed")
            assert await asyncio.gather(*(each.receive() for each in peers)) == [b""] * 250
            assert await stays.ask() == b"acme 127.0.0.1 hello"
            assert await elsewhere.ask() == b"other 127.0.0.2 hello"

    asyncio.run(run())


def test_a_socket_of_both_families_sees_clients_of_ipv4_as_such() -> None:
    async def run() -> None:
        async with echo_server() as (server, _):
            acme = EchoRoute("acme")
            acme.addresses = AddressList(["127.0.0.1/32", "::1"], ["::ffff:127.0.0.2"])
            try:
                port = open_for(server, acme, host="::")
            except OSError:
                pytest.skip("this machine has no IPv6")
            allowed = await Peer.at(port)
            assert await allowed.ask() == b"acme 127.0.0.1 hello"
            assert await (await Peer.at(port, local=OTHER)).receive() == b""
            newer = await Peer.at(port, "::1")
            assert await newer.ask() == b"acme ::1 hello"
            assert acme.refused == [OTHER]

    asyncio.run(run())


def test_an_instance_has_so_many_connections_and_no_more() -> None:
    async def run() -> None:
        async with echo_server() as (server, _):
            acme = EchoRoute("acme")
            acme.connections_max = 2
            ours = open_for(server, acme)
            first, second = await Peer.at(ours), await Peer.at(ours)
            assert [await each.ask() for each in (first, second)] == [b"acme 127.0.0.1 hello"] * 2
            assert await (await Peer.at(ours)).receive() == b""
            first.reset()
            await eventually_async(lambda: server.limits.count("acme") == 1, "the first to be gone")
            assert await (await Peer.at(ours)).ask() == b"acme 127.0.0.1 hello"

    asyncio.run(run())


def test_the_list_is_about_the_client_behind_a_trusted_proxy() -> None:
    async def run() -> None:
        async with echo_server({"max.connections.per.ip": "2"}) as (server, _):
            acme = EchoRoute("acme")
            acme.addresses = AddressList(["192.0.2.0/24", "2001:db8::/32", "127.0.0.1"])
            ours = open_for(server, acme, trusted=Networks([OTHER]))
            for source in ("192.0.2.1", "2001:db8::5", "192.0.2.2", "192.0.2.3"):
                peer = await Peer.at(ours, local=OTHER)
                peer.send(header_of(source, 1234, b"\x03\x00\x04abcd"))
                assert await peer.ask() == f"acme {source} hello".encode()
            refused = await Peer.at(ours, local=OTHER)
            refused.send(header_of("198.51.100.1", 1234))
            assert await refused.receive() == b""
            health = await Peer.at(ours, local=OTHER)
            health.send(header(0x20, 0, b""))
            assert await health.receive() == b"", "the proxy itself is not on the list"
            assert acme.refused == ["198.51.100.1", OTHER]

    asyncio.run(run())


def test_connections_whose_headers_come_late_are_no_more_than_others() -> None:
    async def run() -> None:
        async with echo_server({"max.connections": "2"}) as (server, _):
            acme = EchoRoute("acme")
            ours = open_for(server, acme, trusted=Networks([OTHER]))
            peers = [await Peer.at(ours, local=OTHER) for _ in range(4)]
            await eventually_async(
                lambda: server.proxied is not None and len(server.proxied) == 4, "all to be accepted"
            )
            for each in peers:
                each.send(header_of("192.0.2.1", 1234))
            answers = await asyncio.gather(*(each.ask() for each in peers))
            assert sorted(answers) == [b"", b"", *[b"acme 192.0.2.1 hello"] * 2]
            assert server.limits.total == 2

    asyncio.run(run())


def test_a_mapped_source_is_an_address_of_ipv4() -> None:
    async def run() -> None:
        async with echo_server() as (server, _):
            acme = EchoRoute("acme")
            acme.addresses = AddressList(["192.0.2.0/24"])
            peer = await Peer.at(open_for(server, acme, trusted=Networks(["127.0.0.0/8"])))
            peer.send(header_of("::ffff:192.0.2.1", 1))
            assert await peer.ask() == b"acme 192.0.2.1 hello"

    asyncio.run(run())


def test_nobody_else_says_where_a_connection_is_from() -> None:
    """To a server that does not trust the sender a header is a request of 218 MB."""

    async def run() -> None:
        async with echo_server() as (server, _):
            acme = EchoRoute("acme")
            ours = open_for(server, acme, trusted=Networks(["10.0.0.0/8"]))
            stranger = await Peer.at(ours)
            stranger.send(header_of("192.0.2.1", 1))
            assert await stranger.receive() == b""
            assert [each.host for each in acme.connections] == ["127.0.0.1"]
            assert await (await Peer.at(ours)).ask() == b"acme 127.0.0.1 hello"

    asyncio.run(run())


def test_a_header_may_come_byte_by_byte() -> None:
    async def run() -> None:
        async with echo_server() as (server, _):
            acme = EchoRoute("acme")
            slow = await Peer.at(open_for(server, acme, trusted=Networks(["127.0.0.0/8"])))
            for byte in header_of("192.0.2.1", 1):
                slow.send(bytes([byte]))
                await asyncio.sleep(0)
            assert await slow.ask() == b"acme 192.0.2.1 hello"

    asyncio.run(run())


@pytest.mark.slow
def test_a_trusted_proxy_without_a_header_and_with_half_or_a_huge_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxied, "HANDSHAKE_MS", 300)
    monkeypatch.setattr(proxied, "PROXY_HEADERS_MAX", 50)

    async def run() -> None:
        async with echo_server() as (server, port):
            acme = EchoRoute("acme")
            ours = open_for(server, acme, trusted=Networks(["127.0.0.0/8"]))
            plain = await Peer.at(ours)
            assert await plain.ask() == b"", "the header is required"
            huge = await Peer.at(ours)
            huge.send(SIGNATURE + b"\x21\x11\xff\xff")
            assert await huge.receive() == b""
            silent, half = await Peer.at(ours), await Peer.at(ours)
            half.send(header_of("192.0.2.1", 1)[:20])
            assert await silent.receive() == b""
            assert await half.receive() == b""
            gone = await Peer.at(ours)
            gone.reset()
            storm = [await Peer.at(ours) for _ in range(120)]
            assert server.proxied is not None
            assert len(server.proxied) <= 50
            await asyncio.gather(*(each.receive() for each in storm))
            await eventually_async(lambda: not server.proxied, "the last to be closed")
            assert await (await Peer.at(port)).ask() == b"hello"
            assert acme.connections == []

    asyncio.run(run())
