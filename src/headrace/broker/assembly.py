"""Builds a broker from its services, and defines the order in which they start and stop.

    open_storage    data directories (locked) -> metadata store -> cluster id -> topic settings      `storage`
    assemble        recovered logs -> registration -> services -> the controller, whose LeaderAndIsr opens partitions
    start           both: sockets are bound before `assemble` and served after it

The sockets are bound first, since the registration has to name the ports. They are served last, so that no client
sees a broker without its partitions.

Each service pushes its end on the `stack`. Stopping is therefore the reverse of starting, also after a start that
failed half-way. `Environment` holds all that comes from outside the broker: a simulation assembles the same services.
"""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import replace
from typing import NamedTuple

from headrace.broker.cluster.controlled_shutdown import move_leaders
from headrace.broker.cluster.fenced_metadata import FencedMetadata
from headrace.broker.environment import REAL, Environment
from headrace.broker.handlers import MODULES
from headrace.broker.liveness.failure_detector import FailureDetector
from headrace.broker.request.dispatch import Dispatcher
from headrace.broker.service_builders import build_services, can_fence
from headrace.broker.services import Services
from headrace.broker.storage import Storage, load_logs, open_storage
from headrace.config import BrokerConfig
from headrace.log.manager import TICK_MS, LogManager
from headrace.metadata.model import Broker as Registration
from headrace.metadata.model import Endpoint
from headrace.metadata.registration import Registration as BrokerRegistration
from headrace.metadata.uuids import random_uuid, to_text
from headrace.metastore.session_watch import SessionWatch
from headrace.metastore.store import MetadataStore
from headrace.network.bound_listeners import BoundListeners
from headrace.network.listeners import Listener, endpoints, parse_protocols
from headrace.network.server import Server
from headrace.types import BrokerId

log = logging.getLogger(__name__)

_IDLE_CHECK_S = 10.0
_FIRST_METADATA_S = 10.0
"""How long a start waits for the first UpdateMetadata. Without a controller the broker serves all the same."""
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
    broker = await assemble(config, storage, advertised_endpoints, stack, environment)
    dispatcher = Dispatcher(broker, MODULES)
    server = Server(config, bound, dispatcher)
    stack.callback(broker.tasks.create_task(_close_idle(server)).cancel)
    if config.metrics_listen:
        await stack.enter_async_context(_metrics(config.metrics_listen, broker, dispatcher, server))
    server.start(loop)
    stack.callback(server.close, loop)
    await _wait_for_metadata(broker)
    stack.push_async_callback(_prepare_stop, broker, storage.session)
    return Running(broker, listeners)


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
        registration.broker.id, storage.store, broker.metadata, broker.control, broker.tasks.create_task
    )
    stack.callback(fenced_metadata.close)
    # In this order: partitions that step down answer waiting requests, which must not name this broker as leader.
    for listener in (broker.control.refuse_fenced, fenced_metadata.begin, broker.replicas.step_down):
        registration.on_fenced(listener)
    await broker.controller.start()
    broker.moves.resume()
    stack.push_async_callback(broker.controller.close)
    stack.callback(broker.tasks.create_task(_tick(broker, storage.logs)).cancel)
    if can_fence(config):
        failure_detector = _failure_detector(config, broker, storage.store)
        failure_detector.start()
        stack.push_async_callback(failure_detector.close)
    stack.callback(registration.ignore_fencing)
    return broker


async def _wait_for_metadata(broker: Services) -> None:
    """Waits for the first UpdateMetadata, so that a ready broker can name the controller and the leaders. Gives up
    after `_FIRST_METADATA_S`, since the cluster may have no controller at the moment."""
    has_metadata, own_id = asyncio.Event(), BrokerId(broker.config.broker_id)

    def look() -> None:
        if own_id in broker.metadata.snapshot.brokers:
            has_metadata.set()

    broker.metadata.on_change(lambda _: look())
    look()
    try:
        async with asyncio.timeout(_FIRST_METADATA_S):
            await has_metadata.wait()
    except TimeoutError:
        log.warning(
            "no UpdateMetadata within %g s: the cluster has no active controller, or it cannot reach this broker; "
            "clients see no topics until the first one",
            _FIRST_METADATA_S,
        )


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
        this = this._replace(is_clean=logs.was_clean, directory=directory, supports_fencing=can_fence(config))
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
    address: str, broker: Services, dispatcher: Dispatcher, server: Server
) -> AbstractAsyncContextManager[object]:
    """The metrics' endpoint, imported only where it is configured."""
    from headrace.broker.metrics.endpoint import metrics_endpoint
    from headrace.broker.metrics.page import Page

    return metrics_endpoint(address, Page(broker, dispatcher, server))


async def _tick(broker: Services, logs: LogManager) -> None:
    """Runs the logs' periodic work (flushes, retention, checkpoints) until it is cancelled."""
    period_ms = min(TICK_MS, broker.config.log_flush_scheduler_interval_ms)
    while True:
        await asyncio.sleep(period_ms / 1000)
        logs.tick(broker.now_ms())


async def _close_idle(server: Server) -> None:
    """Closes idle connections until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_IDLE_CHECK_S)
        server.close_idle(loop.time())
