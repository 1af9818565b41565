"""The parts of a broker, put together: what each is made of, and in which order they start and stop.

    open_storage    data directories (locked) -> tree -> cluster id -> settings
    assemble        recovered logs -> registration -> the parts -> the controller, whose LeaderAndIsr opens partitions
    start           both, between sockets that are bound and sockets that are served

Everything that is started leaves its end on the `stack`, so that stopping is the reverse of starting, also when a
start fails half-way. What comes from outside the broker is in `world`: a simulation assembles the same parts.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from headrace.broker.background import background_on
from headrace.broker.control_plane import ControlPlane
from headrace.broker.control_sender import control_sender
from headrace.broker.controlled_shutdown import lead_elsewhere
from headrace.broker.dispatch import Dispatcher
from headrace.broker.fetch_sessions import FetchSessionCache
from headrace.broker.group_shell import GroupShell
from headrace.broker.handlers import MODULES, advertised
from headrace.broker.listeners import Listener, endpoints, parse_protocols
from headrace.broker.log_dir_failures import LogDirFailures
from headrace.broker.lookout import Lookout
from headrace.broker.metadata_cache import MetadataCache
from headrace.broker.offsets_topic import OffsetsTopic
from headrace.broker.partition import end_key
from headrace.broker.parts import Broker
from headrace.broker.peer_book import PeerBook
from headrace.broker.purgatory import Purgatory
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.replica_moves import ReplicaMoves
from headrace.broker.replication import Replication
from headrace.broker.server import Server
from headrace.broker.world import REAL, World
from headrace.config import BrokerConfig
from headrace.coordination.broker_settings import BrokerSettings
from headrace.coordination.configs import TopicConfigs
from headrace.coordination.controller import Controller, Rebalancing
from headrace.coordination.embedded import FILE_NAME
from headrace.coordination.model import Broker as Registration
from headrace.coordination.model import Endpoint
from headrace.coordination.producer_ids import ProducerIds
from headrace.coordination.registration import Registration as BrokerRegistration
from headrace.coordination.registry import ensure_cluster, next_broker_id
from headrace.coordination.session_watch import SessionWatch
from headrace.coordination.topics import TopicDefaults
from headrace.coordination.tree import Tree
from headrace.coordination.uuids import random_uuid, to_text
from headrace.errors import InvalidConfig
from headrace.log.cleaner_run import CleanerSettings
from headrace.log.data_directory import DataDirectoryRefused
from headrace.log.manager import TICK_MS, LogManager, Periods
from headrace.log.progress import LoadingStopped, Progress
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

_IDLE_CHECK_S = 10.0
_FIRST_WORD_S = 10.0
"""A start takes no longer than this for want of a controller."""
_OUT_OF_REACH_S = 3.0
"""A stop is not prepared while the tree is out of reach for longer: nobody can be given what this broker leads."""
_EXPIRY_MS = 2000
"""How much longer than its time-out a session may be there: ensembles look at them once in a tick."""
FLUSHING_THREADS = 16
"""So many partitions are flushed at once: a file system commits syncs that wait together, so more cost no more."""


class Running(NamedTuple):
    """A broker that answers requests."""

    broker: Broker
    listeners: tuple[Listener, ...]


class Storage(NamedTuple):
    """What a broker finds on its disk, or has found to be its cluster's: locked, identified, not yet recovered."""

    logs: LogManager
    tree: Tree
    configs: TopicConfigs
    cluster_id: str
    session: SessionWatch


async def start(config: BrokerConfig, stack: AsyncExitStack, world: World = REAL) -> Running:
    """Everything, up to open sockets. Raises `InvalidConfig`, `DataDirectoryRefused`, `TreeInUse`, `OSError`."""
    loop = asyncio.get_running_loop()
    storage = await open_storage(config, stack, world)
    dispatcher = Dispatcher(MODULES)
    server = Server(config, dispatcher)
    stack.callback(server.close, loop)
    listeners = tuple(server.bind())
    protocols = parse_protocols(config.listener_security_protocol_map)
    told = endpoints(listeners, config.advertised_listeners, protocols)
    broker = await assemble(config, storage, told, stack, world)
    dispatcher.broker = broker
    stack.callback(broker.tasks.create_task(_close_idle(server)).cancel)
    if config.metrics_listen:
        await stack.enter_async_context(_metrics(config.metrics_listen, broker, dispatcher, server))
    server.start(loop)
    stack.callback(server.close, loop)  # again, so that at the end no request comes to parts that are gone
    await _told_of_the_cluster(broker)
    stack.push_async_callback(_prepare_stop, broker, storage.session)
    return Running(broker, listeners)


async def assemble(
    config: BrokerConfig, storage: Storage, told: tuple[Endpoint, ...], stack: AsyncExitStack, world: World = REAL
) -> Broker:
    """A broker that is registered as reached at `told`, and does what the controller says. Raises as `start`."""
    await _load(storage.logs, world)
    stack.callback(lambda: storage.logs.close(world.now_ms()))
    config = replace(config, broker_id=storage.logs.broker_id)
    registration = _registration(config, storage, told, world)
    stack.push_async_callback(registration.close)
    registered = await registration.start()
    broker = await _make_parts(config, storage, registered, stack, world)
    registration.on_fenced(broker.replicas.step_down)
    registration.on_change(lambda now: setattr(broker.control, "broker_epoch", now.epoch))
    registration.is_known = lambda: broker.control.is_known
    await broker.controller.start()
    broker.moves.resume()
    stack.push_async_callback(broker.controller.close)
    stack.callback(broker.tasks.create_task(_tick(broker, storage.logs)).cancel)
    if _can_fence(config):
        lookout = _lookout(config, broker, storage.tree)
        lookout.start()
        stack.push_async_callback(lookout.close)
    stack.callback(registration.stop_heeding)
    return broker


async def _told_of_the_cluster(broker: Broker) -> None:
    """Waits for the controller's first word: who is ready can name it, and the leaders. Not for ever, since there may
    be no controller just now."""
    told, own_id = asyncio.Event(), BrokerId(broker.config.broker_id)

    def look() -> None:
        if own_id in broker.metadata.snapshot.brokers:
            told.set()

    broker.metadata.on_change(look)
    look()
    try:
        async with asyncio.timeout(_FIRST_WORD_S):
            await told.wait()
    except TimeoutError:
        log.warning("no controller has told this broker of the cluster yet; clients hear so until one does")


def _can_fence(config: BrokerConfig) -> bool:
    return config.fencing_enable and bool(config.zookeeper_connect)


def _lookout(config: BrokerConfig, broker: Broker, tree: Tree) -> Lookout:
    return Lookout(
        BrokerId(config.broker_id),
        tree=tree,
        peers=broker.replication.peers,
        metadata=broker.metadata,
        controller=broker.controller,
        broker_epoch=lambda: broker.control.broker_epoch,
        listener=config.inter_broker_listener_name,
    )


def _registration(
    config: BrokerConfig, storage: Storage, told: tuple[Endpoint, ...], world: World
) -> BrokerRegistration:
    """What others shall know of this broker. Alone it has nobody to tell how its last stop was."""
    logs = storage.logs
    this = Registration(BrokerId(config.broker_id), told, config.broker_rack or None)
    if config.zookeeper_connect:
        directory = logs.directory_id(lambda: to_text(random_uuid(world.random_bytes)))
        this = this._replace(is_clean=logs.was_clean, directory=directory, heeds_fencing=_can_fence(config))
    patience_ms = config.zookeeper_session_timeout_ms + _EXPIRY_MS if config.zookeeper_connect else 0
    registration = BrokerRegistration(storage.tree, this, world.now_ms, patience_ms=patience_ms)
    registration.on_change(lambda now: setattr(logs, "broker_epoch", now.epoch))
    return registration


async def _prepare_stop(broker: Broker, session: SessionWatch) -> None:
    await session.while_connected(lead_elsewhere(broker), _OUT_OF_REACH_S)


async def _load(logs: LogManager, world: World) -> None:
    """Open the logs on a thread, since it can take long: signals are heard meanwhile. Ends promptly when cancelled."""
    loop = asyncio.get_running_loop()
    progress = Progress(loop.time)
    loading = loop.run_in_executor(None, logs.load, world.now_ms(), progress)
    try:
        await asyncio.shield(loading)
    except asyncio.CancelledError:
        progress.stop()
        with suppress(LoadingStopped):
            await loading
            logs.close(world.now_ms())  # it was done already
        raise


async def open_storage(config: BrokerConfig, stack: AsyncExitStack, world: World = REAL) -> Storage:
    """What is on the disk and in the tree. Raises as `start`."""
    directories = [Path(each) for each in config.log_dirs]
    if not directories or len({each.absolute() for each in directories}) < len(directories):
        raise InvalidConfig(f"log.dirs={','.join(config.log_dirs)!r}: name at least one directory, and each once")
    loop = asyncio.get_running_loop()
    cleaning = ThreadPoolExecutor(max(1, config.log_cleaner_threads), "cleaner")  # makes its threads when used
    stack.callback(cleaning.shutdown)
    flushing = ThreadPoolExecutor(FLUSHING_THREADS, "flush")
    stack.callback(flushing.shutdown)
    logs = LogManager(
        directories,
        broker_id=BrokerId(config.broker_id),
        topic_config=lambda topic: configs.get(topic),
        files=world.files,
        essential=None if config.zookeeper_connect else directories[0],  # which has the embedded tree
        background=background_on(loop, flushing),
        cleaning=background_on(loop, cleaning),
        periods=Periods(
            config.log_retention_check_interval_ms,
            config.log_flush_offset_checkpoint_interval_ms,
            config.replica_high_watermark_checkpoint_interval_ms,
            config.producer_id_expiration_ms,
            log_start_checkpoint_ms=config.log_flush_start_offset_checkpoint_interval_ms,
            flush_check_ms=config.log_flush_scheduler_interval_ms,
        ),
        cleaner=CleanerSettings(
            is_enabled=config.log_cleaner_enable,
            threads=config.log_cleaner_threads,
            backoff_ms=config.log_cleaner_backoff_ms,
            map_bytes_max=config.log_cleaner_dedupe_buffer_size,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            read_bytes=config.log_cleaner_io_buffer_size,
            io_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        ),
        recovery_threads=config.num_recovery_threads_per_data_dir,
    )
    stack.callback(logs.release)
    tree = await _open_tree(config, logs, world)
    stack.push_async_callback(tree.close)
    session = SessionWatch(tree)
    # An empty chroot is another cluster's beginning, not this directory's: its id will not be the directory's.
    proposed = None if config.zookeeper_connect else logs.cluster_id
    cluster_id = await ensure_cluster(tree, proposed, lambda: random_uuid(world.random_bytes))
    if config.broker_id < 0:
        known = logs.known_broker_id
        logs.broker_id = await next_broker_id(tree, config.reserved_broker_max_id) if known is None else known
    logs.claim(cluster_id)
    configs = TopicConfigs(tree, config.topic_defaults)
    await configs.start()
    stack.push_async_callback(configs.close)
    return Storage(logs, tree, configs, cluster_id, session)


async def _open_tree(config: BrokerConfig, logs: LogManager, world: World) -> Tree:
    """The tree. Refuses a directory with logs and no embedded tree, where it should have that: nobody would know its
    topics."""
    directory = Path(config.log_dirs[0])
    is_alone = not config.zookeeper_connect
    if is_alone and logs.cluster_id is not None and not world.files.exists(directory / FILE_NAME):
        raise DataDirectoryRefused(
            f"data directory {directory} belongs to cluster {logs.cluster_id}, but the cluster's metadata "
            f"({FILE_NAME}) is not in it: name the directory that has it first in log.dirs, or use an empty one"
        )
    return await world.open_tree(config)


async def _make_parts(
    config: BrokerConfig, storage: Storage, registered: Registration, stack: AsyncExitStack, world: World
) -> Broker:
    loop = asyncio.get_running_loop()
    logs, tree, configs, cluster_id, _ = storage
    purgatory, metadata, offsets_topic = Purgatory(loop), MetadataCache(), OffsetsTopic()

    def touch(key: TopicPartition) -> None:
        purgatory.touch(key)
        purgatory.touch(end_key(key))
        offsets_topic.leadership_changed(key)

    now_ms, lag_max_ms = world.now_ms, config.replica_lag_time_max_ms
    replicas = ReplicaManager(
        registered.id,
        logs,
        metadata,
        configs,
        now_ms=now_ms,
        touch=touch,
        lag_max_ms=lag_max_ms,
        soon=loop.call_soon,
    )
    book = PeerBook(metadata, config.inter_broker_listener_name)
    control = ControlPlane(replicas, metadata, configs, book, broker_epoch=registered.epoch)
    peers = world.make_peers(f"headrace-{registered.id}")
    stack.push_async_callback(peers.close)
    controller = Controller(
        tree,
        registered.id,
        send=control_sender(registered.id, control, peers, config.inter_broker_listener_name),
        configs=configs,
        now_ms=now_ms,
        defaults=TopicDefaults(config.num_partitions, config.default_replication_factor),
        delete_enabled=config.delete_topic_enable,
        random_below=lambda bound: int.from_bytes(world.random_bytes(8), "big") % bound,
        new_uuid=lambda: random_uuid(world.random_bytes),
        rebalancing=Rebalancing(
            config.auto_leader_rebalance_enable,
            config.leader_imbalance_check_interval_seconds,
            config.leader_imbalance_per_broker_percentage,
        ),
        listener=config.inter_broker_listener_name or None,
        can_fence=_can_fence(config),
    )
    tasks = await stack.enter_async_context(asyncio.TaskGroup())
    stack.push_async_callback(tree.close)  # requests that wait for a tree out of reach would not end
    settings = BrokerSettings(tree, registered.id, config)
    await settings.start()
    stack.push_async_callback(settings.close)
    replication = Replication(
        config,
        registered.id,
        broker_epoch=lambda: control.broker_epoch,
        peers=peers,
        book=book,
        replicas=replicas,
        controller=controller,
        purgatory=purgatory,
        loop=loop,
        now_ms=now_ms,
        spawn=tasks.create_task,
        settings=settings,
    )
    replication.start()
    stack.callback(replication.close)
    groups = GroupShell(config, offsets_topic, loop=loop, now_ms=now_ms)
    stack.callback(groups.close)
    failures = LogDirFailures(replicas, tree, registered.id, tasks)
    stack.callback(failures.close)
    moves = ReplicaMoves(
        replicas,
        tasks,
        now_ms=now_ms,
        bytes_per_second=lambda: settings.number("replica.alter.log.dirs.io.max.bytes.per.second"),
    )
    failures.on_failure = moves.directory_failed
    stack.callback(moves.close)
    broker = Broker(
        config=config,
        cluster_id=cluster_id,
        loop=loop,
        tasks=tasks,
        now_ms=now_ms,
        purgatory=purgatory,
        metadata=metadata,
        replicas=replicas,
        moves=moves,
        controller=controller,
        groups=groups,
        producer_ids=ProducerIds(tree, registered.id),
        fetch_sessions=FetchSessionCache(config.max_incremental_fetch_session_cache_slots, _session_ids(world)),
        control=control,
        replication=replication,
        settings=settings,
        served=advertised(),
    )
    offsets_topic.broker = broker
    return broker


def _session_ids(world: World) -> Callable[[], int]:
    """Ids of fetch sessions: 31 bits, so that nobody guesses another's; not 0, which is none."""
    return lambda: int.from_bytes(world.random_bytes(4), "big") >> 1 or 1


def _metrics(
    address: str, broker: Broker, dispatcher: Dispatcher, server: Server
) -> AbstractAsyncContextManager[object]:
    """The metrics' endpoint, which is imported only where it is wanted."""
    from headrace.broker.metrics.endpoint import metrics_endpoint
    from headrace.broker.metrics.page import Page

    return metrics_endpoint(address, Page(broker, dispatcher, server))


async def _tick(broker: Broker, logs: LogManager) -> None:
    """What time asks of the logs: flushes, retention, checkpoints. Until it is cancelled."""
    period_ms = min(TICK_MS, broker.config.log_flush_scheduler_interval_ms)
    while True:
        await asyncio.sleep(period_ms / 1000)
        logs.tick(broker.now_ms())


async def _close_idle(server: Server) -> None:
    """Closes connections that nobody uses. Until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_IDLE_CHECK_S)
        server.close_idle(loop.time())
