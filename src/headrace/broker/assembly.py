"""Builds a broker from its services, and defines the order in which they start and stop.

    open_storage    data directories (locked) -> metadata store -> cluster id -> topic settings      `storage`
    assemble        recovered logs -> registration -> services -> the controller, whose LeaderAndIsr opens partitions
    start           both: sockets are bound before `assemble` and served after it

The sockets are bound first, since the registration has to name the ports. They are served last, so that no client
sees a broker without its partitions.

Each service pushes its end on the `stack`. Stopping is therefore the reverse of starting, also after a start that
failed half-way. `Environment` holds all that comes from outside the broker: a simulation assembles the same services.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.cluster.controlled_shutdown import move_leaders
from headrace.broker.cluster.fenced_metadata import FencedMetadata
from headrace.broker.environment import REAL, Environment
from headrace.broker.instance_hosting import BrokerSecurity, InstanceHosting
from headrace.broker.liveness.failure_detector import FailureDetector
from headrace.broker.request.dispatch import Dispatcher
from headrace.broker.service_builders import build_services, can_fence
from headrace.broker.services import Services
from headrace.broker.storage import Storage, load_logs, open_storage
from headrace.config import BrokerConfig
from headrace.in_slices import in_turns
from headrace.log.manager import TICK_MS, LogManager
from headrace.metadata.broker_configs import BrokerSettings
from headrace.metadata.entity_configs import IPS
from headrace.metadata.model import Broker as Registration
from headrace.metadata.model import Endpoint
from headrace.metadata.quota_nodes import ip_of
from headrace.metadata.registration import Registration as BrokerRegistration
from headrace.metadata.uuids import random_uuid, to_text
from headrace.metastore.session_watch import SessionWatch
from headrace.metastore.store import MetadataStore
from headrace.network.bound_listeners import BoundListeners
from headrace.network.connection import Connection
from headrace.network.connection_limits import NotAnAddress
from headrace.network.listeners import Listener, endpoints, parse_protocols
from headrace.network.server import Server
from headrace.types import BrokerId

if TYPE_CHECKING:
    from headrace.broker.instances.removal import InstanceRemovals
    from headrace.broker.kafka07.discovery import Discovery
    from headrace.instances.definition import Instance
    from headrace.network.tls.listeners import TlsListeners

log = logging.getLogger(__name__)

_IDLE_CHECK_S = 10.0
_FIRST_METADATA_S = 10.0
"""How long a start waits for the first UpdateMetadata. Without a controller the broker serves all the same."""
_FIRST_TOPICS_S = 2.0
"""How long it waits for the topics after the brokers. Apache Kafka's controllers do not say that there are none."""
_OUT_OF_REACH_S = 3.0
"""How long a stop waits for a metadata store out of reach. Without the store no other broker can become leader."""
_TRUNCATION_S = 10.0
"""How long a stop waits for truncations in the background. A log that is still being truncated cannot be closed
cleanly, and a broker whose stop was not clean has to catch up before it may lead again."""
_TRUNCATION_LOOK_S = 0.005
_EXPIRY_MS = 2000
"""How long a session may outlive its time-out: ZooKeeper expires sessions once per tick, which is 2 s by default."""


class Running(NamedTuple):
    """A broker that serves requests."""

    broker: Services
    listeners: tuple[Listener, ...]


async def start(config: BrokerConfig, stack: AsyncExitStack, environment: Environment = REAL) -> Running:
    """Starts a broker, up to open sockets. Raises `InvalidConfig`, `DataDirectoryRefused`, `StoreInUse`, `OSError`."""
    loop = asyncio.get_running_loop()
    storage = await open_storage(config, stack, environment)
    bound = BoundListeners(config)
    stack.callback(bound.close)
    listeners = bound.listeners
    protocols = parse_protocols(config.listener_security_protocol_map)
    advertised_endpoints = endpoints(listeners, config.advertised_listeners, protocols)
    tls = await _tls(storage.settings, listeners)
    broker = await assemble(config, storage, advertised_endpoints, stack, environment)
    dispatcher = Dispatcher(broker)
    server = Server(broker.settings.current, bound, dispatcher, tls=tls, after=broker.purgatory)
    discovery = await _discovery_07(broker, listeners, advertised_endpoints, stack)
    _serve_07(broker, server, dispatcher, [each.name for each in listeners if each.is_07], discovery)
    listeners = tuple(each for each in listeners if not each.is_07)
    security = BrokerSecurity(broker, server, dispatcher, stack, environment)
    hosting = InstanceHosting(broker, server, dispatcher, security, listeners, advertised_endpoints)
    security.hosting = hosting
    if tls is not None:
        security.exchange_certificates()
    broker.settings.on_change(lambda _, now: server.configure(now))
    broker.entities.on_change(IPS, partial(_set_address_rate, broker, server))
    server.on_close(broker.shares.disconnected)
    await security.authenticate(listeners)
    await hosting.prepare()
    stack.callback(broker.tasks.create_task(_close_idle(server)).cancel)
    if config.metrics_listen:
        await stack.enter_async_context(_metrics(config.metrics_listen, broker, dispatcher, server, hosting))
    server.start(loop)
    stack.callback(server.close, loop)
    hosting.begin()
    stack.push_async_callback(hosting.close)
    await _wait_for_metadata(broker)
    if discovery is not None:
        stack.push_async_callback(discovery.close)
        stack.callback(broker.tasks.create_task(discovery.run()).cancel)
    stack.push_async_callback(_prepare_stop, broker, storage.session)
    return Running(broker, (*listeners, *(each for each in bound.listeners if each.is_07)))


async def _discovery_07(
    broker: Services, listeners: Sequence[Listener], advertised: Sequence[Endpoint], stack: AsyncExitStack
) -> Discovery | None:
    """What registers the broker for clients of Kafka 0.7, imported where that is configured. Raises as `start`."""
    if not broker.config.kafka07_zookeeper_chroot:
        return None
    from headrace.broker.kafka07.discovery_start import open_discovery

    return await open_discovery(broker, listeners, advertised, stack)


def _serve_07(
    broker: Services, server: Server, dispatcher: Dispatcher, names: Sequence[str], discovery: Discovery | None
) -> None:
    """Gives the connections of listeners for Kafka 0.7 a dispatcher of their own, imported where there is one."""
    if not names:
        return
    from headrace.broker.kafka07.dispatch import Dispatcher07

    old = Dispatcher07(broker, dispatcher.handlers, discovery)

    def hand_over(connection: Connection) -> None:
        if connection.listener in names:
            connection.hand_over(old, broker.settings.current.socket_request_max_bytes)

    server.on_open(hand_over)


async def _tls(settings: BrokerSettings, listeners: Sequence[Listener]) -> TlsListeners | None:
    """The certificates of the TLS listeners, read on a thread; None without such a listener. Raises `InvalidConfig`."""
    if not any(each.is_tls for each in listeners):
        return None
    from headrace.network.tls.listeners import TlsListeners

    return await asyncio.to_thread(TlsListeners, settings.current, listeners)


async def assemble(
    config: BrokerConfig,
    storage: Storage,
    endpoints: tuple[Endpoint, ...],
    stack: AsyncExitStack,
    environment: Environment = REAL,
) -> Services:
    """Builds a broker and registers it under `endpoints`; it applies the controller's requests. Raises as `start`."""
    await load_logs(storage.logs, environment)
    stack.callback(lambda: storage.logs.close(environment.now_ms()))
    stack.push_async_callback(_wait_for_truncations, storage.logs)
    config = replace(config, broker_id=storage.logs.directories.broker_id)
    registration = _registration(config, storage, endpoints, environment)
    stack.push_async_callback(registration.close)
    await registration.start()
    broker = await build_services(config, storage, registration, stack, environment)
    fenced_metadata = FencedMetadata(
        registration.broker.id,
        storage.store,
        broker.metadata,
        broker.control,
        broker.tasks.create_task,
        broker.replicas.announce_stepped_down,
    )
    stack.callback(fenced_metadata.close)
    # In this order: nothing that is under way may let this broker lead again.
    for listener in (broker.control.refuse_fenced, broker.replicas.step_down, fenced_metadata.begin):
        registration.on_fenced(listener)
    registration.on_change(lambda _: fenced_metadata.look())
    await broker.controller.start()
    broker.moves.resume()
    stack.push_async_callback(broker.controller.close)
    _remove_instances(broker, stack)
    stack.callback(broker.tasks.create_task(_tick(broker, storage.logs)).cancel)
    if can_fence(config):
        failure_detector = _failure_detector(config, broker, storage.store)
        failure_detector.start()
        stack.push_async_callback(failure_detector.close)
    stack.callback(registration.ignore_fencing)
    return broker


def _remove_instances(broker: Services, stack: AsyncExitStack) -> None:
    """Removes instances that are deleted; imports what does so with the first of them."""
    found: list[InstanceRemovals] = []

    def changed(name: str, instance: Instance | None) -> None:
        if not found:
            if instance is None or instance.deleted_at_ms is None:
                return
            from headrace.broker.instances.removal import InstanceRemovals

            found.append(InstanceRemovals(broker))
        found[0].changed(name, instance)

    async def close() -> None:
        for each in found:
            await each.close()

    stack.push_async_callback(close)
    broker.instances.on_change(changed)


def _set_address_rate(broker: Services, server: Server, name: str, configs: Mapping[str, str]) -> None:
    address = ip_of(name)
    try:
        server.limits.set_address_rate(address, configs)
    except NotAnAddress:
        assert address is not None
        broker.spawn(_set_host_rate(server, address, configs))
    except ValueError as error:
        log.warning("the quota of address %s is ignored: %s", name, error)


async def _set_host_rate(server: Server, host: str, configs: Mapping[str, str]) -> None:
    """Applies a quota that is set for the name of a host to its addresses, as they are now."""
    try:
        for found in await asyncio.get_running_loop().getaddrinfo(host, None):
            server.limits.set_address_rate(str(found[4][0]), configs)
    except (OSError, ValueError) as error:
        log.warning("the quota of host %s is ignored: %s", host, error)


async def _wait_for_metadata(broker: Services) -> None:
    """Waits for the first UpdateMetadata, and that with the topics, so that a ready broker can name the controller and
    the leaders. Gives up after `_FIRST_METADATA_S`, since the cluster may have no controller at the moment."""
    has_brokers, has_topics, own_id = asyncio.Event(), asyncio.Event(), BrokerId(broker.config.broker_id)

    def look() -> None:
        if own_id in broker.metadata.snapshot.brokers:
            has_brokers.set()
            if broker.metadata.snapshot.has_topics:
                has_topics.set()

    broker.metadata.on_change(lambda _: look())
    look()
    try:
        async with asyncio.timeout(_FIRST_METADATA_S):
            await has_brokers.wait()
    except TimeoutError:
        log.warning(
            "no UpdateMetadata within %g s: the cluster has no active controller, or it cannot reach this broker; "
            "clients see no topics until the first one",
            _FIRST_METADATA_S,
        )
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_FIRST_TOPICS_S):
            await has_topics.wait()


def _failure_detector(config: BrokerConfig, broker: Services, store: MetadataStore) -> FailureDetector:
    return FailureDetector(
        BrokerId(config.broker_id),
        store=store,
        peers=broker.replication.peers,
        metadata=broker.metadata,
        controller=broker.controller,
        broker_epoch=lambda: broker.control.broker_epoch,
        listener=config.inter_broker_listener_name,
    )


def _registration(
    config: BrokerConfig, storage: Storage, endpoints: tuple[Endpoint, ...], environment: Environment
) -> BrokerRegistration:
    """This broker's registration. In a cluster it also says whether the last stop was clean, for the controller's
    elections."""
    logs = storage.logs
    this = Registration(BrokerId(config.broker_id), endpoints, config.broker_rack or None)
    if config.zookeeper_connect:
        directory = logs.directories.directory_id(lambda: to_text(random_uuid(environment.random_bytes)))
        this = this._replace(
            is_clean=logs.was_clean,
            directory=directory,
            supports_fencing=can_fence(config),
            min_insync_replicas=config.topic_defaults.min_insync_replicas,
        )
    patience_ms = config.zookeeper_session_timeout_ms + _EXPIRY_MS if config.zookeeper_connect else 0
    registration = BrokerRegistration(storage.store, this, environment.now_ms, patience_ms=patience_ms)
    registration.on_change(lambda now: logs.registered(now.epoch))
    return registration


async def _wait_for_truncations(logs: LogManager) -> None:
    """Lets the background work of truncations end. The fetchers, which begin them, have stopped by now."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_TRUNCATION_S):
            while any(log.is_truncating for log in logs.logs.values()):  # noqa: ASYNC110 - a truncation wakes nobody
                await asyncio.sleep(_TRUNCATION_LOOK_S)


async def _prepare_stop(broker: Services, session: SessionWatch) -> None:
    broker.replication.fetchers.stop_adding()
    await session.while_connected(move_leaders(broker), _OUT_OF_REACH_S)


def _metrics(
    address: str, broker: Services, dispatcher: Dispatcher, server: Server, hosting: InstanceHosting
) -> AbstractAsyncContextManager[object]:
    """The metrics' endpoint, imported only where it is configured."""
    from headrace.broker.metrics.endpoint import metrics_endpoint
    from headrace.broker.metrics.page import Page

    return metrics_endpoint(address, Page(broker, dispatcher, server, hosting))


async def _tick(broker: Services, logs: LogManager) -> None:
    """Runs the logs' periodic work (flushes, retention, checkpoints) until it is cancelled. Then nothing keeps the logs
    of partitions that were dropped."""
    period_ms = min(TICK_MS, broker.config.log_flush_scheduler_interval_ms)
    drops = 0
    while True:
        await asyncio.sleep(period_ms / 1000)
        for _ in logs.work(broker.now_ms()):
            await asyncio.sleep(0)
        if broker.replicas.drops > drops:
            drops = broker.replicas.drops
            await in_turns(broker.fetch_sessions.let_go_of_dropped())


async def _close_idle(server: Server) -> None:
    """Closes idle connections until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_IDLE_CHECK_S)
        server.close_idle(loop.time())
