"""A broker in the simulation: the real parts, assembled by the broker's own assembly, in a simulated world.

What is simulated is the machine around it (`Environment`: clock, disk, tree, the way to other brokers, chance) and the
sockets: frames come from a simulated connection to the real dispatcher.
"""

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING, Any

from headrace.broker import assembly
from headrace.broker.cluster.controlled_shutdown import move_leaders
from headrace.broker.environment import Environment
from headrace.broker.instance_hosting import BrokerSecurity, InstanceHosting
from headrace.broker.request.dispatch import Dispatcher
from headrace.broker.services import Services
from headrace.broker.storage import open_storage
from headrace.config import BROKER_SETTINGS, BrokerConfig, parse_broker
from headrace.metadata.model import Endpoint
from headrace.network.connection import Connection
from headrace.network.listeners import Listener
from tests.simulation.disk import HostDisk, SimFiles
from tests.simulation.frames import Served, SimPeers
from tests.simulation.network import End
from tests.simulation.plan import SHARE_STATE_PARTITIONS
from tests.simulation.scheduler import Life, Process
from tests.simulation.server import SimServer
from tests.simulation.sockets import SocketHost

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

PORT = 9092


_SMALL_INDEXES = {"log.index.size.max.bytes": "4096"}
"""A simulated disk has no holes: indexes of ten megabytes would be most of what a simulation holds in memory."""


class SimBroker:
    """One broker's host over all lives of its process."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        self.cluster, self.number, self.host = cluster, number, f"broker-{number}"
        self.disk = HostDisk(is_plain=number in cluster.plan.plain_disks)
        self.chance = Random(f"{cluster.seed}/{self.host}/power")
        self.process: Process | None = None
        self.parts: Services | None = None
        self._stop: asyncio.Event | None = None
        self._waiting: list[End] = []
        self._served: list[Served | Connection] = []
        self._sockets: SocketHost | None = None
        self._dispatcher: Dispatcher | None = None
        self.clock_skew_ms = self.slow_disk_us = 0

    # Life and death

    @property
    def is_running(self) -> bool:
        """Whether there is a process, paused or not."""
        return self.process is not None and self.process.is_alive

    @property
    def is_ready(self) -> bool:
        """Whether it answers requests."""
        return self.parts is not None and self.process is not None and self.process.life is Life.RUNNING

    def start(self) -> None:
        """Starts a process on this host."""
        self.cluster.network.host(self.host).is_on = True
        self.process = self.cluster.scheduler.process(self.host)
        self.process.clock_skew_ms = self.clock_skew_ms
        self.process.loop.slow_disk_us = self.slow_disk_us
        self._waiting, self._served, self._sockets = [], [], None
        self.cluster.network.listen(self.host, self.process, self._accept)
        self.process.call(self._begin, self.process)
        self.note("starts")

    def kill(self) -> None:
        """SIGKILL: the page cache survives, the host answers for it."""
        self.note("is killed")
        self._end(is_host_off=False)

    def lose_power(self) -> None:
        """The host is off, and what was not synced is gone."""
        self.note("loses its power")
        self._end(is_host_off=True)
        self.disk.lose_power(self.chance)

    def stop(self) -> None:
        """SIGTERM: a clean stop."""
        assert self.process is not None
        if self._stop is None:  # it is still starting
            self.kill()
            return
        self.note("is asked to stop")
        self.process.call(self._stop.set)

    def pause(self) -> None:
        assert self.process is not None
        self.note("is paused")
        self.process.pause()

    def resume(self) -> None:
        assert self.process is not None
        self.note("goes on")
        self.process.resume()

    def slow_down(self, slow_disk_us: int) -> None:
        """Adds this to the time of each piece of work that the disk has, also after a restart."""
        self.slow_disk_us = slow_disk_us
        if self.process is not None:
            self.process.loop.slow_disk_us = slow_disk_us
        if slow_disk_us:
            self.note(f"its disk takes {slow_disk_us / 1000:g} ms longer")

    def note(self, what: str) -> None:
        self.cluster.timeline.note(f"broker {self.number}", what)

    def _end(self, *, is_host_off: bool) -> None:
        process = self.process
        assert process is not None
        process.kill()
        self.cluster.network.process_died(process, self.host, is_host_off=is_host_off)
        self.parts = self._stop = None

    # The process

    def _begin(self, process: Process) -> None:
        process.loop.create_task(self._main(process)).add_done_callback(lambda task: self._ended(process, task))

    async def _main(self, process: Process) -> None:
        cluster = self.cluster
        config = self.config()
        stop = asyncio.Event()
        async with AsyncExitStack() as stack:
            environment = self._environment(process)
            storage = await open_storage(config, stack, environment)
            endpoint = Endpoint("PLAINTEXT", self.host, PORT)
            parts = await assembly.assemble(config, storage, (endpoint,), stack, environment)
            self._dispatcher = Dispatcher(parts)
            if self.disk.is_plain:
                self._sockets = SocketHost(process, parts.purgatory)
                stack.callback(self._sockets.close)
            cluster.network.listen(self.host, process, self._serve)
            self.parts, self._stop = parts, stop
            for end in self._waiting:
                self._serve(end)
            stack.callback(self._stop_serving)
            self._host_instances(parts, process, endpoint, stack, environment)
            stack.push_async_callback(move_leaders, parts)
            self.note("is ready")
            await stop.wait()

    def _host_instances(
        self, parts: Services, process: Process, endpoint: Endpoint, stack: AsyncExitStack, environment: Environment
    ) -> None:
        """As `assembly.start` does, with listeners in the simulated network."""
        server: Any = SimServer(self.cluster.network, process, self.host, self._connected)
        stack.callback(server.close)
        assert self._dispatcher is not None
        listener = Listener(endpoint.listener, "127.0.0.1", PORT)
        security = BrokerSecurity(parts, server, self._dispatcher, stack, environment)
        hosting = InstanceHosting(parts, server, self._dispatcher, security, (listener,), (endpoint,))
        security.hosting = hosting
        hosting.begin()
        stack.push_async_callback(hosting.close)

    def _environment(self, process: Process) -> Environment:
        network = self.cluster.network
        return Environment(
            now_ms=process.now_ms,
            files=SimFiles(self.disk, process),
            open_store=lambda config: self.cluster.ensemble.open(process, self.host),
            make_peers=lambda client_id, _config: SimPeers(network, process, self.host, client_id),
            random_bytes=process.random_bytes,
        )

    def config(self) -> BrokerConfig:
        """The settings of this broker."""
        wanted = {
            "broker.id": str(self.number),
            "broker.rack": f"rack-{self.number}",
            "log.dirs": f"/{self.host}",
            "zookeeper.connect": "simulated:2181",
            "auto.create.topics.enable": "false",
            "log.cleaner.enable": "false",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": str(self.cluster.plan.replicas),
            "transaction.state.log.num.partitions": str(self.cluster.plan.transaction_partitions),
            "transaction.state.log.replication.factor": str(self.cluster.plan.replicas),
            "transaction.state.log.min.isr": str(self.cluster.plan.min_insync_replicas),
            "share.coordinator.state.topic.num.partitions": str(SHARE_STATE_PARTITIONS),
            "share.coordinator.state.topic.replication.factor": str(self.cluster.plan.replicas),
            "share.coordinator.state.topic.min.isr": str(self.cluster.plan.min_insync_replicas),
            "group.initial.rebalance.delay.ms": "0",
            "replica.lag.time.max.ms": "1500",
            "replica.selector.class": "RackAwareReplicaSelector",
            "replica.fetch.wait.max.ms": "300",
            "replica.fetch.backoff.ms": "200",
            "replica.socket.timeout.ms": "2000",
            "controller.socket.timeout.ms": "3000",
            "request.timeout.ms": "2000",
            "replica.high.watermark.checkpoint.interval.ms": "1000",
            "log.flush.offset.checkpoint.interval.ms": "2000",
            "zookeeper.session.timeout.ms": str(self.cluster.plan.session_timeout_ms),
            **self.cluster.plan.settings,
        }
        known = {name: text for name, text in wanted.items() if name in BROKER_SETTINGS}
        return parse_broker({**known, **_SMALL_INDEXES})

    def _accept(self, end: End) -> None:
        """Connections wait until the broker is ready, as in the backlog of a socket that is bound."""
        if self.parts is not None:
            self._serve(end)
        else:
            self._waiting.append(end)
            end.on_bytes = _Early()

    def _serve(self, end: End) -> None:
        assert self._dispatcher is not None
        early = end.on_bytes
        if len(self._served) > 64:
            self._served = [each for each in self._served if not each.is_closed]
        self._served.append(self._connected(end, self._dispatcher, "PLAINTEXT"))
        for frame in early.early if isinstance(early, _Early) else ():
            end.received(frame)

    def _connected(self, end: End, dispatch: Any, listener: str) -> Served | Connection:
        """Takes up a connection: with sockets, where the files have descriptors to send from."""
        if self._sockets is not None:
            return self._sockets.serve(end, dispatch, listener)
        return Served(end, dispatch, listener)

    def _stop_serving(self) -> None:
        self.parts = None
        self.cluster.network.host(self.host).accept = None
        for served in self._served:
            served.close("this broker stops")

    def _ended(self, process: Process, task: "asyncio.Task[None]") -> None:
        if not process.is_alive:
            return
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Exception):
            error = None
        self.note(f"ends: {error!r}" if error else "has stopped")
        # A registration that ends soon; or a full disk, without whose room the logs cannot be recovered.
        if type(error).__name__ == "BrokerIdInUse" or (error is not None and self.disk.is_full):
            self.cluster.network.process.call_in(1_000_000, lambda: None if self.is_running else self.start())
        elif error is not None:
            self.cluster.broker_failed(self, error)
        self._end(is_host_off=False)
        if self.cluster.nemesis.is_over:
            self.start()


class _Early:
    """Keeps what arrives on a connection that is not taken up yet."""

    def __init__(self) -> None:
        self.early: list[bytes] = []

    def __call__(self, frame: bytes) -> None:
        self.early.append(frame)
