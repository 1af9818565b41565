"""The real sockets of a simulated process: what the network brings is received in passes, what is sent leaves whole."""

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.network.connection import Connection
from headrace.network.receive_pass import Turn
from tests.simulation import plan as kinds
from tests.simulation.cluster import run
from tests.simulation.network import End, Network
from tests.simulation.plan import Plan
from tests.simulation.scheduler import Scheduler
from tests.simulation.sockets import SocketHost

SERVER, CLIENT = "server", "client"


class After(Turn):
    """Counts the turns."""

    count = 0

    def flush(self) -> None:
        self.count += 1


class Echo:
    """A server that sends each frame back, and its clients."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(3)
        self.network = Network(self.scheduler)
        self.process, self.other = self.scheduler.process(SERVER), self.scheduler.process(CLIENT)
        self.after = After()
        self.host = SocketHost(self.process, self.after)
        self.connections: list[Connection] = []
        self.network.listen(SERVER, self.process, self._accept)
        self.network.host(CLIENT)

    def _accept(self, end: End) -> None:
        self.connections.append(self.host.serve(end, self._echo, "PLAINTEXT"))

    @staticmethod
    def _echo(connection: Connection, frame: memoryview) -> None:
        connection.answer([len(frame).to_bytes(4, "big") + bytes(frame)], None)

    def client(self) -> tuple[End, list[bytes]]:
        """A connection, and what comes back on it."""
        end = self.network.connect(self.other, CLIENT, SERVER)
        answers: list[bytes] = []
        end.on_bytes = answers.append
        return end, answers

    def run(self) -> None:
        self.scheduler.run_for(1_000_000)


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.scheduler.dispose()
    assert not made.scheduler.failures


def test_frames_are_answered_in_their_order_and_those_that_meet_in_one_turn(echo: Echo) -> None:
    clients = [echo.client() for _ in range(3)]
    echo.run()
    sent = [[f"{which}.{number}".encode() for number in range(20)] for which in range(3)]
    echo.process.pause()
    for number in range(20):
        for which, (end, _) in enumerate(clients):
            end.send(sent[which][number])
    echo.run()
    before = echo.after.count
    echo.process.resume()
    echo.run()
    assert [answers for _, answers in clients] == sent
    assert 0 < echo.after.count - before < 60


def test_what_is_more_than_a_socket_takes_comes_whole(echo: Echo) -> None:
    end, answers = echo.client()
    large = os.urandom(3 << 20)
    end.send(large)
    end.send(b"behind")
    echo.run()
    assert answers == [large, b"behind"]


def test_each_end_hears_that_the_other_one_closed(echo: Echo) -> None:
    (left, _), (kept, answers) = echo.client(), echo.client()
    reasons: list[str] = []
    kept.on_closed = reasons.append
    echo.run()
    left.close()
    echo.run()
    [still_open] = [each for each in echo.connections if not each.is_closed]
    kept.send(b"a")
    echo.run()
    echo.process.call(still_open.close, "no reason")
    echo.run()
    assert answers == [b"a"]
    assert reasons == ["the peer closed the connection"]


def test_a_dead_process_answers_nothing_and_its_sockets_are_closed_in_the_end() -> None:
    gc.collect()  # closes descriptors of other tests
    before = len(os.listdir("/proc/self/fd"))
    echo = Echo()
    end, answers = echo.client()
    reasons: list[str] = []
    end.on_closed = reasons.append
    echo.run()
    end.send(b"a")
    echo.process.kill()
    echo.network.process_died(echo.process, SERVER, is_host_off=False)
    echo.run()
    assert (answers, reasons) == ([], ["the peer closed the connection"])
    echo.scheduler.dispose()
    echo.host.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.slow
def test_brokers_with_plain_disks_take_produces_by_the_shortest_way(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatchers: dict[int, Any] = {}
    serve = SocketHost.serve

    def serve_noted(self: SocketHost, end: End, dispatch: Any, listener: str) -> Connection:
        dispatchers[id(dispatch)] = dispatch
        return serve(self, end, dispatch, listener)

    monkeypatch.setattr(SocketHost, "serve", serve_noted)
    result = run(7, Plan(faults=(kinds.CRASH, kinds.PAUSE), pipelines=2, plain_disks=frozenset({1, 2, 3})))
    assert result.is_good, result.story()
    ways = [each.shortcut for each in dispatchers.values() if getattr(each, "shortcut", None) is not None]
    assert sum(each.produces.taken for each in ways) > 100
    assert sum(each.produces.waited for each in ways) > 50
