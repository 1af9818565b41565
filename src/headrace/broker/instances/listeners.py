"""The listeners of instances on this broker: follows the instances, opens and closes ports, and publishes addresses.

    definition      port, protocol, brokers, addresses ─▶ a listener of its own, or none
                    allow, deny, connections_max       ─▶ new connections, and those that are open
                    DELETING, deleted                  ─▶ all closed
    published       {instance: (host, port)} of this broker, for its clients' metadata
    remembered      the ports that the system assigned, for the next start

One task does all of it, a few instances in a turn of the event loop, so that a thousand of them delay no request. A
port that cannot be opened is a line in the log and is tried again, later and later; it never ends the broker.

    addresses=1=HOST:PORT   is what broker 1 advertises. If HOST is an address of this machine, the listener binds it,
                            too; otherwise (a name, or an address of a load balancer) it binds the host of the broker's
                            own listener, and the port of the instance
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace.broker.instances.visitors import FindDispatch, InstanceRoute, Visitors
from headrace.errors import InvalidConfig, KafkaError
from headrace.instances.address_list import AddressList, is_address
from headrace.instances.definition import InstanceState
from headrace.limits import INLINE_NETWORKS_MAX
from headrace.metadata.instance_ports import read_ports, write_ports
from headrace.metastore.store import StoreError
from headrace.network.listeners import SASL_PROTOCOLS, TLS_PROTOCOLS, Listener
from headrace.types import BrokerId

if TYPE_CHECKING:
    from headrace.broker.instances.ways_in import WaysIn
    from headrace.instances.address_list import Networks
    from headrace.instances.definition import Instance
    from headrace.metadata.stored_instances import StoredInstances
    from headrace.metastore.store import MetadataStore
    from headrace.network.entrances import ListenerTls
    from headrace.network.server import Server

log = logging.getLogger(__name__)

_INSTANCES_PER_TURN = 10
RETRY_FIRST_S, RETRY_MAX_S = 1.0, 60.0


class OwnListener(NamedTuple):
    """The broker's own listener for clients, after which those of instances are made."""

    bind: str
    """The address that it binds; may be empty, for all."""
    advertised: str
    """The host that clients know."""


class ListenAddress(NamedTuple):
    """Where the listener of an instance is to be."""

    bind: str
    port: int
    """0 for any."""
    advertised: str
    advertised_port: int
    """0 for that which is bound."""
    protocol: str
    has_own_settings: bool = False


Opening: TypeAlias = "tuple[InstanceRoute, ListenerTls | None]"


class _Served:
    """One instance on this broker."""

    __slots__ = ("address", "bound", "port", "retry", "retry_s", "visitors")

    def __init__(self, visitors: Visitors) -> None:
        self.visitors = visitors
        self.address: ListenAddress | None = None  # of the open listener
        self.bound, self.port = "", 0  # host and port that are bound
        self.retry: asyncio.TimerHandle | None = None
        self.retry_s = RETRY_FIRST_S


class InstanceListeners:
    """The listeners of all instances on one broker."""

    def __init__(
        self,
        instances: StoredInstances,
        store: MetadataStore,
        server: Server,
        broker: BrokerId,
        host: OwnListener,
        find: FindDispatch,
        ways_in: WaysIn,
        trusted: Networks | None = None,
    ) -> None:
        """`find`: the dispatcher of an instance. `ways_in`: TLS and SASL. `trusted`: the proxies that tell where
        connections are from."""
        self._instances, self._store, self._server = instances, store, server
        self._broker, self._host, self._find, self._ways_in, self._trusted = broker, host, find, ways_in, trusted
        self._served: dict[str, _Served] = {}
        self._changed: dict[str, None] = {}  # names, in order
        self._wakes = asyncio.Event()
        self._ports: dict[str, int] = {}
        self._stored_ports: dict[str, int] = {}
        self._published: Mapping[str, tuple[str, int]] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def visitors(self) -> Mapping[str, Visitors]:
        """The clients of each instance that this broker serves."""
        return {name: served.visitors for name, served in self._served.items()}

    def find(self, name: str) -> Visitors | None:
        """The clients of an instance; None for one that this broker does not serve. May be called on any thread."""
        served = self._served.get(name)
        return None if served is None else served.visitors

    def start(self) -> None:
        """Opens the listeners, and begins to follow the instances."""
        self._instances.on_change(lambda name, _: self._look_at(name))
        self._task = asyncio.get_running_loop().create_task(self._run())

    def settings_changed(self) -> None:
        """Opens the listeners anew that have settings of their own now, or have them no more."""
        for name in self._served:
            self._look_at(name)

    async def close(self) -> None:
        """Stops following. The server closes the listeners."""
        for served in self._served.values():
            _cancel(served)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _look_at(self, name: str) -> None:
        self._changed[name] = None
        self._wakes.set()

    # -- the task

    async def _run(self) -> None:
        while True:
            try:
                self._ports = self._stored_ports = await read_ports(self._store, self._broker)
                break
            except StoreError as error:
                log.warning("the ports of instances cannot be read, trying again: %s", error)
                await asyncio.sleep(RETRY_FIRST_S)
        self._ports = dict(self._ports)
        while True:
            await self._wakes.wait()
            self._wakes.clear()
            done = 0
            while self._changed:
                name = next(iter(self._changed))
                del self._changed[name]
                try:
                    await self._apply(name, self._instances.get(name))
                except Exception:  # one instance must not end the listeners of others
                    log.exception("the listener of instance %s could not be changed", name)
                done += 1
                if not done % _INSTANCES_PER_TURN:
                    await asyncio.sleep(0)
            await self._tell()

    async def _apply(self, name: str, instance: Instance | None) -> None:
        served = self._served.get(name)
        if served is not None and (instance is None or instance.id != served.visitors.instance.id):
            await self._end(name, served)
            served = None
        if instance is None:
            self._ports.pop(name, None)
            return
        if (
            instance.state is not InstanceState.ACTIVE
        ):  # `brokers` bounds where its partitions are; any may lead its groups
            if served is not None:
                await self._end(name, served)
            return
        if served is None:
            served = self._served[name] = _Served(
                Visitors(instance, await _address_list(instance), self._find, asyncio.get_running_loop())
            )
        else:
            await self._change(name, served, instance)
        address = address_of(instance, self._broker, self._host)
        if address is not None:
            address = address._replace(has_own_settings=self._ways_in.has_own_settings(name))
        await self._move(name, served, address)

    async def _change(self, name: str, served: _Served, instance: Instance) -> None:
        """Takes another definition; closes connections from addresses and of principals that it no longer allows."""
        visitors, before = served.visitors, served.visitors.instance
        if (before.allow, before.deny) == (instance.allow, instance.deny):
            visitors.change(instance)
        else:
            visitors.change(instance, await _address_list(instance))
            await self._server.close_connections(
                name, lambda host: not visitors.allows(host), "its address is no longer allowed"
            )
        if (before.principals, before.admins) != (instance.principals, instance.admins):
            await self._server.close_clients(
                name, lambda connection: not visitors.keeps(connection), "its principal is no longer allowed"
            )

    async def _end(self, name: str, served: _Served) -> None:
        """Closes everything of an instance that this broker serves no longer."""
        del self._served[name]
        _cancel(served)
        self._server.shut(name)
        await self._ways_in.forget(name)
        await self._server.close_connections(name, lambda _: True, "the instance is not served here any more")

    # -- one listener

    async def _move(self, name: str, served: _Served, address: ListenAddress | None) -> None:
        """Opens, closes or moves the listener of an instance."""
        before = served.address
        if address == before:
            if before is None:
                return
            try:
                self._ways_in.check(served.visitors.instance, served.bound)
            except InvalidConfig:
                pass  # its address list is empty now
            else:
                return
        _cancel(served)
        opening: Opening | None = None
        try:
            opening = None if address is None else await self._opening(served, address)
        except (OSError, KafkaError, StoreError) as error:
            assert address is not None
            is_same = before is not None and before._replace(has_own_settings=address.has_own_settings) == address
            if not is_same:  # else the certificate of before goes on
                await self._shut(name, served, address)
            self._try_again(name, served, address, error)
            return
        await self._shut(name, served, address)
        if address is None or opening is None:
            return
        try:
            served.port = self._open(served, address, *opening)
        except (OSError, KafkaError, StoreError) as error:
            self._try_again(name, served, address, error)
            return
        served.address, served.retry_s = address, RETRY_FIRST_S
        if not address.port:
            self._ports[name] = served.port
        log.info("instance %s listens", name, extra={"address": f"{address.bind}:{served.port}"})

    async def _opening(self, served: _Served, address: ListenAddress) -> Opening:
        """What a listener needs before it is opened. Raises `InvalidConfig`."""
        name = served.visitors.name
        tls = await self._ways_in.tls(name, address.protocol) if address.protocol in TLS_PROTOCOLS else None
        gate = await self._ways_in.gate(name) if address.protocol in SASL_PROTOCOLS else None
        return InstanceRoute(served.visitors, gate), tls

    async def _shut(self, name: str, served: _Served, address: ListenAddress | None) -> None:
        """Closes the listener of an instance, if it is open, before another one is opened."""
        before = served.address
        if before is not None:
            self._server.shut(name)
            served.address, served.port = None, 0
            if address is None or address.protocol != before.protocol:
                await self._server.close_connections(name, lambda _: True, "the protocol of the listener has changed")

    def _open(self, served: _Served, address: ListenAddress, route: InstanceRoute, tls: ListenerTls | None) -> int:
        """The port at which a listener was opened. Raises `OSError`, `InvalidConfig`."""
        server, name = self._server, route.name
        binds = [address.bind, self._host.bind] if address.bind != self._host.bind else [address.bind]
        ports = [address.port]
        if not address.port and name in self._ports:
            ports = [self._ports[name], 0]
        failure: OSError | None = None
        for bind in binds:
            for port in ports:
                try:
                    found = server.open(Listener(name, bind, port, address.protocol), route, tls, self._trusted)
                except OSError as error:
                    failure = error
                    if error.errno == errno.EADDRNOTAVAIL:
                        break  # not an address of this machine: a load balancer's
                else:
                    self._check(route.visitors.instance, bind)
                    served.bound = bind
                    return found
            else:
                break
        assert failure is not None
        raise failure

    def _check(self, instance: Instance, bind: str) -> None:
        """Closes an open listener that may not be on its address. Raises `InvalidConfig`."""
        try:
            self._ways_in.check(instance, bind)
        except InvalidConfig:
            self._server.shut(instance.name)  # in the turn in which it was opened: it has accepted nobody
            raise

    def _try_again(self, name: str, served: _Served, address: ListenAddress, error: Exception) -> None:
        delay, served.retry_s = served.retry_s, min(2 * served.retry_s, RETRY_MAX_S)
        log.error(
            "instance %s cannot listen on %s:%d: %s; free the port or correct the settings, or give the instance "
            "another port with `headrace instance alter %s --port N`; it is tried again in %g s",
            name,
            address.bind or "*",
            address.port,
            getattr(error, "strerror", None) or getattr(error, "message", None) or error,
            name,
            delay,
        )
        served.retry = asyncio.get_running_loop().call_later(delay, self._look_at, name)

    # -- what others are told

    async def _tell(self) -> None:
        """Publishes and remembers what has changed."""
        endpoints = {}
        for name, served in self._served.items():
            address = served.address
            if address is not None:
                endpoints[name] = (address.advertised, address.advertised_port or served.port)
            else:
                shared = self._ways_in.shared_address(served.visitors.instance)
                if shared is not None:
                    endpoints[name] = shared
        try:
            if endpoints != self._published:
                await self._instances.publish(self._broker, endpoints)
                self._published = endpoints
            ports = {name: port for name, port in self._ports.items() if self._instances.get(name) is not None}
            if ports != self._stored_ports:
                await write_ports(self._store, self._broker, ports)
                self._stored_ports = ports
        except StoreError as error:
            log.warning("the listeners of instances could not be published, trying again: %s", error)
            asyncio.get_running_loop().call_later(RETRY_FIRST_S, self._wakes.set)


def address_of(instance: Instance, broker: BrokerId, own: OwnListener) -> ListenAddress | None:
    """Where a broker is to listen for an instance; None if it has no listener of its own there."""
    if instance.port is None:
        return None
    for each in instance.addresses:
        number, _, rest = each.partition("=")
        if int(number) == broker:
            host, _, text = rest.rpartition(":")
            host, port = host.strip("[]"), int(text)
            bind = host if is_address(host) else own.bind
            return ListenAddress(bind, instance.port or port, host, port, instance.protocol)
    return ListenAddress(own.bind, instance.port, own.advertised, 0, instance.protocol)


async def _address_list(instance: Instance) -> AddressList:
    if len(instance.allow) + len(instance.deny) <= INLINE_NETWORKS_MAX:
        return AddressList(instance.allow, instance.deny)
    return await asyncio.to_thread(AddressList, instance.allow, instance.deny)


def _cancel(served: _Served) -> None:
    if served.retry is not None:
        served.retry.cancel()
        served.retry = None
