"""Connections of the simulated network keep order, stand still while cut, and tell both ends when they break."""

import pytest

from tests.simulation.network import ENSEMBLE, End, Network, Weather
from tests.simulation.scheduler import Process, Scheduler

SECOND_US = 1_000_000


class Talk:
    """A client on one host, a server on another, and what each heard."""

    def __init__(self, seed: int = 1, weather: Weather | None = None) -> None:
        self.scheduler = Scheduler(seed)
        self.network = Network(self.scheduler, weather or Weather(loss=0, breaks=0))
        self.client, self.server = self.scheduler.process("client"), self.scheduler.process("server")
        self.at_client: list[str] = []
        self.at_server: list[str] = []
        self.network.host("c")
        self.network.host("s")
        self.listen(self.server)
        self.end = self.connect()

    def listen(self, process: Process) -> None:
        def accept(end: End) -> None:
            def reply(data: bytes) -> None:
                self.at_server.append(data.decode())
                end.send(b"re " + data)

            end.on_bytes = reply
            end.on_closed = lambda reason: self.at_server.append(f"closed: {reason}")

        self.network.listen("s", process, accept)

    def connect(self) -> End:
        end = self.network.connect(self.client, "c", "s")
        end.on_bytes = lambda data: self.at_client.append(data.decode())
        end.on_closed = lambda reason: self.at_client.append(f"closed: {reason}")
        return end

    def send(self, *texts: str) -> None:
        for text in texts:
            self.end.send(text.encode())

    def run(self, seconds: float = 10) -> None:
        self.scheduler.run_for(int(seconds * SECOND_US))


@pytest.mark.parametrize("seed", range(5))
def test_a_connection_keeps_order_also_when_packets_are_lost(seed: int) -> None:
    talk = Talk(seed, Weather(loss=0.2, breaks=0))
    numbers = [str(number) for number in range(100)]
    talk.send(*numbers)
    talk.run(60)
    assert talk.at_server == numbers
    assert talk.at_client == [f"re {number}" for number in numbers]


def test_two_connections_have_no_order_between_them() -> None:
    def order(seed: int) -> list[str]:
        talk = Talk(seed)
        for number in range(10):
            talk.end = talk.connect()
            talk.send(str(number))
        talk.run()
        return talk.at_server

    assert len({tuple(order(seed)) for seed in range(10)}) > 5
    assert all(sorted(order(seed)) == sorted(map(str, range(10))) for seed in range(3))


def test_a_cut_holds_everything_back_until_it_is_healed() -> None:
    talk = Talk()
    talk.run(1)
    talk.network.cut("s", "c")  # one way: the answers
    talk.send("a")
    talk.run(30)
    assert (talk.at_server, talk.at_client) == (["a"], [])
    assert not talk.network.is_whole("c", "s")
    talk.network.heal()
    talk.run(1)
    assert talk.at_client == ["re a"]


def test_where_nobody_listens_a_connection_is_refused() -> None:
    talk = Talk()
    talk.run(1)
    talk.network.host("s").accept = None
    talk.end = talk.connect()
    talk.send("a")
    talk.run()
    assert talk.at_client == ["closed: the connection was refused"]
    assert talk.at_server == []


def test_the_death_of_a_process_is_told_and_its_hosts_is_not() -> None:
    for is_host_off, heard in ((False, ["re a", "closed: the peer closed the connection"]), (True, ["re a"])):
        talk = Talk()
        talk.send("a")
        talk.run(1)
        talk.server.kill()
        talk.network.process_died(talk.server, "s", is_host_off=is_host_off)
        talk.send("b")
        talk.run()
        assert talk.at_client == heard
        assert talk.at_server == ["a"]


def test_a_restarted_process_resets_the_connections_of_the_one_before() -> None:
    talk = Talk()
    talk.send("a")
    talk.run(1)
    talk.server.kill()
    talk.network.process_died(talk.server, "s", is_host_off=True)
    talk.network.host("s").is_on = True
    talk.server = talk.scheduler.process("server")
    talk.listen(talk.server)
    talk.send("b")
    talk.run()
    assert talk.at_client[-1].startswith("closed")
    assert talk.at_server == ["a"]


def test_a_broken_connection_is_told_at_both_ends() -> None:
    talk = Talk(weather=Weather(loss=0, breaks=1))
    talk.run(1)
    talk.send("a", "b")
    talk.run()
    assert talk.at_client[-1] == "closed: the connection was reset"
    assert talk.at_server[-1] == "closed: the connection was reset"


def test_a_closed_connection_delivers_what_was_sent_before() -> None:
    talk = Talk()
    talk.send("a")
    talk.end.close()
    talk.run()
    assert talk.at_server == ["a", "closed: the client closed the connection"]
    assert talk.at_client == []
    assert ENSEMBLE in talk.network.hosts


@pytest.mark.parametrize("seed", range(20))
def test_nothing_that_is_sent_after_a_reset_arrives(seed: int) -> None:
    """Not even while the sender has not heard of it: else it would overtake what the reset lost."""
    talk = Talk(seed)
    talk.send("0")
    talk.run(1)
    (connection,) = talk.network._connections[talk.client]
    talk.send("1")
    connection.break_off("the connection was reset")
    talk.send("2")
    talk.run()
    assert talk.at_server[:1] == ["0"]
    assert "2" not in talk.at_server
    assert talk.at_client[-1] == "closed: the connection was reset"
