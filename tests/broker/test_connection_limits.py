"""Limits of connections: how many, how fast, of whom; and that brokers get in all the same."""

import socket
import time

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.admin_requests import broker_id
from tests.broker.quota_requests import Client, alter, describe, rows, set_quota
from tests.conftest import StartHeadrace
from tests.eventually import eventually
from tests.harness import free_ports

pytestmark = pytest.mark.slow  # processes of its own

OTHER = "127.0.0.2"


def answers(client: Asker) -> bool:
    """Whether the broker serves the connection; False if it is closed."""
    try:
        return bool(client.ask(m.ApiVersionsRequest(), 0).error_code == 0)
    except ConnectionError:
        return False


def waits(client: Asker) -> bool:
    """Whether nothing comes back for a moment: the connection is not accepted."""
    client.send(m.ApiVersionsRequest(), 0)
    client.socket.settimeout(0.2)
    try:
        client.socket.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(60)
    return False


def test_connections_beyond_the_limit_wait_until_others_close(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings={"max.connections": "2"})
    with Client(server.bootstrap, "c") as third:
        with Client(server.bootstrap, "a") as first, Client(server.bootstrap, "b") as second:
            third.socket.close()
            assert answers(first)
            assert answers(second)
            third.socket = Client(server.bootstrap, "c").socket
            assert waits(third)
        assert third.receive(m.ApiVersionsRequest(), 0).error_code == 0


def test_addresses_have_limits_of_their_own(headrace_server: StartHeadrace) -> None:
    limits = {"max.connections.per.ip": "2", "max.connections.per.ip.overrides": f"{OTHER}:1"}
    server = headrace_server(settings=limits)
    with Client(server.bootstrap, "a") as a, Client(server.bootstrap, "b") as b, Client(server.bootstrap, "c") as c:
        assert [answers(each) for each in (a, b, c)] == [True, True, False]
    with Client(server.bootstrap, "a", local=OTHER) as a, Client(server.bootstrap, "b", local=OTHER) as b:
        assert [answers(each) for each in (a, b)] == [True, False]


def test_a_listener_has_limits_of_its_own_and_that_of_brokers_has_no_other(headrace_server: StartHeadrace) -> None:
    brokers, clients = (f"127.0.0.1:{port}" for port in free_ports(2))
    headrace_server(
        listen=f"BROKERS://{brokers},CLIENTS://{clients}",
        settings={
            "max.connections": "3",
            "inter.broker.listener.name": "BROKERS",
            "listener.security.protocol.map": "BROKERS:PLAINTEXT,CLIENTS:PLAINTEXT",
            "listener.name.clients.max.connections": "2",
        },
    )
    with Client(clients, "a") as a, Client(clients, "b") as b, Client(clients, "c") as c:
        assert answers(a)
        assert answers(b)
        assert waits(c)
        with Client(brokers, "x") as x, Client(brokers, "y") as y:
            assert answers(x)
            assert answers(y), "the broker's limit does not count for brokers"
            eventually(lambda: not (answers(a) and answers(b)), "the longest idle client to make room")


def test_an_address_over_its_rate_is_turned_away_after_a_while(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings={"quota.window.num": "2"})
    with Asker(server.bootstrap) as asker:
        set_quota(asker, {"ip": OTHER}, connection_creation_rate=3)
        assert rows(asker.ask(describe(("ip", 2, None)), 1)) == [((("ip", OTHER),), {"connection_creation_rate": 3.0})]
        began = time.monotonic()
        clients = [Client(server.bootstrap, "c", local=OTHER) for _ in range(10)]
        served = [answers(each) for each in clients]
        assert served[:3] == [True, True, True]
        assert served.count(False) >= 3 or time.monotonic() - began > 1
        assert time.monotonic() - began >= 0.2, "it is not closed at once"
        for each in clients:
            each.socket.close()
        assert answers(asker)
        assert asker.ask(alter({"ip": OTHER}, connection_creation_rate=None), 1).entries[0].error_code == 0
    clients = [Client(server.bootstrap, "c", local=OTHER) for _ in range(10)]
    assert all(answers(each) for each in clients)


def test_an_address_has_its_limit_on_a_listener_for_both_families(headrace_server: StartHeadrace) -> None:
    """A socket of IPv6 names the peer `::ffff:127.0.0.1`."""
    settings = {"max.connections.per.ip.overrides": f"{OTHER}:1", "advertised.listeners": "PLAINTEXT://127.0.0.1:0"}
    server = headrace_server(settings=settings, listen="[::]:0", arguments=("--insecure",))
    bootstrap = f"127.0.0.1:{server.port}"
    with Client(bootstrap, "a", local=OTHER) as a, Client(bootstrap, "b", local=OTHER) as b:
        assert answers(a)
        assert not answers(b)


def test_a_quota_of_a_host_is_one_of_its_address(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings={"quota.window.num": "2"})
    with Asker(server.bootstrap) as asker:
        set_quota(asker, {"ip": "localhost"}, connection_creation_rate=1)

        def is_turned_away() -> bool:
            with Client(server.bootstrap, "c") as client:
                return not answers(client)

        eventually(is_turned_away, "localhost to have its quota")


def test_new_connections_beyond_the_brokers_rate_wait(headrace_server: StartHeadrace) -> None:
    settings = {"max.connection.creation.rate": "20", "quota.window.num": "2"}
    server = headrace_server(settings=settings)
    began = time.monotonic()
    for _ in range(40):
        with Client(server.bootstrap, "c") as client:
            assert answers(client)
    assert time.monotonic() - began >= 0.7, "20 at once, and 20 a second"


def test_a_limit_changes_while_the_broker_runs(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    with Client(server.bootstrap, "a") as a, Client(server.bootstrap, "b") as b:
        assert answers(b)
        change = m.IncrementalAlterConfigsRequest.AlterableConfig(
            name="max.connections.per.ip.overrides", config_operation=0, value="127.0.0.1:2"
        )
        broker = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=4, resource_name=str(broker_id(a)), configs=[change]
        )
        answer = a.ask(m.IncrementalAlterConfigsRequest(resources=[broker]), 1)
        assert (answer.responses[0].error_code, answer.responses[0].error_message) == (0, None)
        with Client(server.bootstrap, "c") as c:
            assert not answers(c)


@pytest.mark.parametrize("broker", ["one", "all"])
def test_a_limit_of_a_listener_changes_while_the_broker_runs(headrace_server: StartHeadrace, broker: str) -> None:
    server = headrace_server()
    with Client(server.bootstrap, "a") as a, Client(server.bootstrap, "b") as b:
        assert answers(b)
        resource = (4, str(broker_id(a)) if broker == "one" else "")

        def change(name: str, value: str | None) -> int:
            """The error code of a change; None deletes."""
            wanted = m.IncrementalAlterConfigsRequest.AlterableConfig(
                name=name, config_operation=value is None, value=value
            )
            altered = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=resource[0], resource_name=resource[1], configs=[wanted]
            )
            code: int = a.ask(m.IncrementalAlterConfigsRequest(resources=[altered]), 1).responses[0].error_code
            return code

        limit = "listener.name.plaintext.max.connections"
        assert change(limit, "2") == 0
        assert configs_of(a, *resource)[limit] == "2"
        with Client(server.bootstrap, "c") as c:
            assert waits(c)
            assert change(limit, "3") == 0
            assert c.receive(m.ApiVersionsRequest(), 0).error_code == 0, "a raised limit lets those in that wait"
        assert change(limit, None) == 0
        with Client(server.bootstrap, "c") as c, Client(server.bootstrap, "d") as d:
            assert answers(c)
            assert answers(d)
        assert change("listener.name.plaintext.num.network.threads", "4") == 0
        assert change("listener.name.nothing.max.connections", "4") == ErrorCode.INVALID_REQUEST
        assert change(limit, "many") == ErrorCode.INVALID_REQUEST


def configs_of(client: Asker, kind: int, name: str) -> dict[str, str | None]:
    """What a broker's configs are, or those for all brokers."""
    wanted = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    described = client.ask(m.DescribeConfigsRequest(resources=[wanted]), 4).results[0].configs
    return {each.name: each.value for each in described}


def test_an_ip_that_is_none_is_refused(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    with Asker(server.bootstrap) as asker:
        for name, code in (("no such host", 42), ("::1", 0), ("localhost", 0)):
            answer = asker.ask(alter({"ip": name}, connection_creation_rate=5), 1).entries[0]
            assert answer.error_code == code, name
        assert answers(asker)
