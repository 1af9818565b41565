"""The network between simulated hosts: connections whose bytes travel with delay, stand still, or never arrive.

A connection is two lanes, one in each direction. What is put into a lane comes out in that order; between lanes there
is no order. What TCP makes of a lossy network is what happens here:

    lost packet      the lane stands still for as long as a retransmission takes, up to seconds
    cut (one way)    the lane stands still until the cut is healed; then it goes on, late, also if nobody waits any more
    broken           both ends hear of it, each in its time; what was under way is gone, or had arrived
    process dead     its host answers: connections to it are refused, those it had are reset
    host off         silence
"""

import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

from tests.simulation.scheduler import Process, Scheduler

ENSEMBLE = "zookeeper"


class Weather(NamedTuple):
    """How bad the network is."""

    delay_us: int = 300  # mean
    loss: float = 0.004  # of messages that have to be sent again
    resend_us_max: int = 1_500_000
    breaks: float = 0.0008  # of messages at which the connection breaks


CALM = Weather(loss=0, breaks=0)


@dataclass
class Host:
    """A machine: on or off, with a process that listens or none."""

    name: str
    is_on: bool = True
    accept: "Callable[[End], None] | None" = None
    ports: "dict[int, Callable[[End], None]]" = field(default_factory=dict)
    """Further listeners of the process, by port."""

    def listener(self, port: int) -> "Callable[[End], None] | None":
        """What takes connections to a port; 0 is the process's first listener."""
        return self.ports.get(port) if port else self.accept


class End:
    """One end of a connection, as its process sees it. `on_bytes` gets what the other end sent, `on_closed` why the
    connection is over; both run in the process."""

    __slots__ = ("_connection", "_is_client", "is_open", "on_bytes", "on_closed", "process")

    def __init__(self, connection: "_Connection", process: Process, *, is_client: bool) -> None:
        self._connection, self._is_client = connection, is_client
        self.process = process
        self.is_open = True
        self.on_bytes: Callable[[bytes], None] = lambda data: None
        self.on_closed: Callable[[str], None] = lambda reason: None

    @property
    def peer_host(self) -> str:
        return self._connection.hosts[0 if not self._is_client else 1]

    def send(self, data: bytes) -> None:
        """Has `data` travel to the other end, whole."""
        if self.is_open and self.process.is_alive:
            self._connection.send(self, data)

    def close(self) -> None:
        """The other end hears of it, after what was sent before."""
        if self.is_open:
            self.is_open = False
            self._connection.close(self)

    def received(self, data: bytes) -> None:
        if self.is_open:
            self.on_bytes(data)

    def broken(self, reason: str) -> None:
        if self.is_open:
            self.is_open = False
            self.on_closed(reason)


Item = TypeVar("Item")


class Lane(Generic[Item]):
    """One direction of a connection."""

    __slots__ = ("_deliver", "_is_pumping", "_last_us", "_network", "_queue", "source", "target")

    def __init__(self, network: "Network", source: str, target: str, deliver: Callable[[Item], object]) -> None:
        self._network, self.source, self.target, self._deliver = network, source, target, deliver
        self._queue: deque[tuple[int, Item]] = deque()
        self._last_us = 0
        self._is_pumping = False

    def put(self, item: Item) -> None:
        now_us = self._network.scheduler.now_us
        self._last_us = max(self._last_us + 1, now_us + self._network.delay_us())
        self._queue.append((self._last_us, item))
        if not self._is_pumping:
            self._is_pumping = True
            self._network.process.call_in(self._last_us - now_us, self.pump)

    def clear(self) -> None:
        self._queue.clear()

    def pump(self) -> None:
        """Delivers what is due; waits for the rest, or for the cut to be healed."""
        network, queue = self._network, self._queue
        while queue and queue[0][0] <= network.scheduler.now_us:
            if (self.source, self.target) in network.cuts:
                network.stalled.append(self)
                return
            self._deliver(queue.popleft()[1])
        if queue:
            network.process.call_in(queue[0][0] - network.scheduler.now_us, self.pump)
        else:
            self._is_pumping = False


_CLOSE = object()
_OPEN = object()


class _Connection:
    """A client's end, a server's end once it is accepted, and the lanes between."""

    def __init__(self, network: "Network", client: Process, hosts: tuple[str, str], port: int) -> None:
        self._network, self.hosts, self.port = network, hosts, port
        self.client = End(self, client, is_client=True)
        self.server: End | None = None
        self._is_broken = False
        self._to_server = Lane(network, hosts[0], hosts[1], self._at_server)
        self._to_client = Lane(network, hosts[1], hosts[0], self._at_client)
        self._to_server.put(_OPEN)

    def send(self, end: End, data: bytes) -> None:
        if self._is_broken:  # this end has not heard of it yet; what it sends now arrives nowhere
            return
        network = self._network
        lane = self._to_server if end is self.client else self._to_client
        lane.put(data)
        network.note(lane.source, lane.target, data)
        if network.chance.random() < network.weather.breaks:
            self.break_off("the connection was reset")

    def close(self, end: End) -> None:
        (self._to_server if end is self.client else self._to_client).put(_CLOSE)

    def break_off(self, reason: str) -> None:
        """Both ends hear of it; what is on its way arrives before that, or not at all."""
        self._is_broken = True
        for lane, end in ((self._to_server, self.server), (self._to_client, self.client)):
            if self._network.chance.random() < 0.5:
                lane.clear()
            if end is not None:
                self._network.process.call_in(self._network.delay_us(), end.process.call, end.broken, reason)

    def process_died(self, process: Process) -> None:
        """The kernel of the host that is still there resets what its process had open."""
        mine, other = (self.client, self.server) if self.client.process is process else (self.server, self.client)
        if mine is not None:
            mine.is_open = False
        lane = self._to_client if other is self.client else self._to_server
        if self._network.chance.random() < 0.5:
            lane.clear()
        lane.put(_CLOSE)

    def _at_server(self, item: object) -> None:
        host = self._network.hosts[self.hosts[1]]
        if not host.is_on:
            return
        if item is _OPEN:
            if host.listener(self.port) is None or self.hosts in self._network.refusals:
                self._to_client.put(_CLOSE)
                return
            self._network.accept(self, host)
        elif self.server is not None and self.server.process.is_alive:
            self._hand_over(self.server, item, "the client closed the connection")
        else:
            self._to_client.put(_CLOSE)

    def _at_client(self, item: object) -> None:
        reason = "the connection was refused" if self.server is None else "the peer closed the connection"
        self._hand_over(self.client, item, reason)

    @staticmethod
    def _hand_over(end: End, item: object, reason: str) -> None:
        if item is _CLOSE:
            end.process.call(end.broken, reason)
        else:
            end.process.call(end.received, item)


class Network:
    """Every host, and what is between them."""

    def __init__(self, scheduler: Scheduler, weather: Weather = CALM) -> None:
        self.scheduler, self.weather = scheduler, weather
        self.chance = Random(f"{scheduler.seed}/network")
        self.process = scheduler.process("network")
        self.hosts: dict[str, Host] = {ENSEMBLE: Host(ENSEMBLE)}
        self.cuts: dict[tuple[str, str], None] = {}
        self.refusals: dict[tuple[str, str], None] = {}
        self.stalled: list[Lane[Any]] = []
        self.messages = 0
        self.digest = 0
        """Of every message that was sent, when, and between whom: two runs that are the same have the same."""
        self._connections: dict[Process, list[_Connection]] = {}
        self._listening: dict[str, Process] = {}

    def host(self, name: str) -> Host:
        """The host of that name, made when it is not there."""
        return self.hosts.setdefault(name, Host(name))

    def connect(self, process: Process, source: str, target: str, port: int = 0) -> End:
        """The client's end of a new connection; what is sent before it is open follows."""
        made = _Connection(self, process, (source, target), port)
        self._of(process).append(made)
        return made.client

    def accept(self, connection: _Connection, host: Host) -> None:
        """The server's end: its process takes the connection up when it runs."""
        listening = self._listening[host.name]
        connection.server = End(connection, listening, is_client=False)
        self._of(listening).append(connection)
        accept = host.listener(connection.port)
        assert accept is not None
        listening.call(accept, connection.server)

    def listen(self, host: str, process: Process, accept: Callable[[End], None]) -> None:
        """Connections to `host` are the process's from now on."""
        self.host(host).accept = accept
        self._listening[host] = process

    def _of(self, process: Process) -> list[_Connection]:
        found = self._connections.setdefault(process, [])
        if len(found) > 64:
            found[:] = [each for each in found if each.client.is_open or (each.server and each.server.is_open)]
        return found

    def process_died(self, process: Process, host: str, *, is_host_off: bool) -> None:
        """The process is gone; with its host, nobody hears of it."""
        self.host(host).accept = None
        self.host(host).ports.clear()
        if is_host_off:
            self.host(host).is_on = False
        for each in self._connections.pop(process, []):
            if not is_host_off:
                each.process_died(process)

    # Cuts

    def cut(self, source: str, target: str) -> None:
        """Nothing goes from one to the other any more."""
        self.cuts[source, target] = None

    def refuse(self, source: str, target: str) -> None:
        """To `source` it looks as if the process at `target` were dead, which lives: connections break, and new ones
        are refused."""
        self.refusals[source, target] = None
        for each in {id(each): each for some in self._connections.values() for each in some}.values():
            if each.hosts == (source, target):
                each.break_off("the connection was reset")

    def heal(self) -> None:
        """Everything goes everywhere, first what has been waiting."""
        self.cuts.clear()
        self.refusals.clear()
        stalled, self.stalled = self.stalled, []
        for lane in stalled:
            self.process.call_in(1_000 + self.chance.randrange(300_000), lane.pump)

    def is_whole(self, one: str, other: str) -> bool:
        """Whether two hosts hear each other."""
        return (one, other) not in self.cuts and (other, one) not in self.cuts and self.host(one).is_on

    def delay_us(self) -> int:
        """How long the next message takes."""
        chance, weather = self.chance, self.weather
        delay_us = 50 + int(chance.expovariate(1 / weather.delay_us))
        if weather.loss and chance.random() < weather.loss:
            delay_us += 200_000 + chance.randrange(weather.resend_us_max)
        return delay_us

    def note(self, source: str, target: str, data: bytes) -> None:
        """Adds a message to the digest."""
        self.messages += 1
        self.digest = zlib.crc32(f"{self.scheduler.now_us} {source}>{target} ".encode() + data, self.digest)
