"""Opens a broker's data directories and metadata store, before the broker registers.

    data directories (locked) -> metadata store -> cluster id -> configs             `open_storage`
    recovery of the logs                                                             `load_logs`

The directories are locked first: a second broker on the same directories must not reach the metadata store.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from headrace.broker.background import background_on
from headrace.broker.environment import REAL, Environment
from headrace.config import BrokerConfig
from headrace.errors import InvalidConfig
from headrace.log.cleaning.cleaner_run import CleanerSettings
from headrace.log.directories.data_directory import DataDirectoryRefused
from headrace.log.manager import LogManager, Periods
from headrace.log.recovery.progress import LoadingStopped, RecoveryProgress
from headrace.metadata.broker_configs import BrokerSettings
from headrace.metadata.entity_configs import EntityConfigs
from headrace.metadata.registry import ensure_cluster, next_broker_id
from headrace.metadata.stored_instances import StoredInstances
from headrace.metadata.topic_configs import TopicConfigs
from headrace.metadata.uuids import random_uuid
from headrace.metastore.database import FILE_NAME
from headrace.metastore.session_watch import SessionWatch
from headrace.metastore.store import MetadataStore
from headrace.types import BrokerId

CLEANER_THREADS_MAX = 64
"""The highest value of log.cleaner.threads."""
FLUSHING_THREADS = 16
"""How many partitions are flushed at once. A file system commits syncs that wait together, so more threads cost
little."""


class Storage(NamedTuple):
    """The data directories and the metadata store: locked and identified, with logs not yet recovered."""

    logs: LogManager
    store: MetadataStore
    entities: EntityConfigs
    configs: TopicConfigs
    instances: StoredInstances
    """Not started."""
    settings: BrokerSettings
    cluster_id: str
    session: SessionWatch


async def open_storage(config: BrokerConfig, stack: AsyncExitStack, environment: Environment = REAL) -> Storage:
    """Opens the data directories and the metadata store. Raises `InvalidConfig`, `DataDirectoryRefused`, `StoreInUse`,
    `OSError`."""
    directories = [Path(each) for each in config.log_dirs]
    if not directories or len({each.absolute() for each in directories}) < len(directories):
        raise InvalidConfig(
            f"log.dirs={','.join(config.log_dirs)!r} is invalid: name at least one directory, and each only once"
        )
    loop = asyncio.get_running_loop()
    # The pool starts threads on demand. The cleaner itself bounds its runs by log.cleaner.threads, which may change.
    cleaning = ThreadPoolExecutor(CLEANER_THREADS_MAX, "cleaner")
    stack.callback(cleaning.shutdown)
    flushing = ThreadPoolExecutor(FLUSHING_THREADS, "flush")
    stack.callback(flushing.shutdown)
    logs = LogManager(
        directories,
        broker_id=BrokerId(config.broker_id),
        topic_config=lambda topic: configs.get(topic),
        files=environment.files,
        essential=None if config.zookeeper_connect else directories[0],  # holds the embedded store
        background=background_on(loop, flushing),
        soon=loop.call_soon,
        cleaning=background_on(loop, cleaning),
        periods=Periods(
            config.log_retention_check_interval_ms,
            config.log_flush_offset_checkpoint_interval_ms,
            config.replica_high_watermark_checkpoint_interval_ms,
            config.producer_id_expiration_ms,
            log_start_checkpoint_ms=config.log_flush_start_offset_checkpoint_interval_ms,
            flush_check_ms=config.log_flush_scheduler_interval_ms,
        ),
        cleaner=cleaner_settings(config),
        recovery_threads=config.num_recovery_threads_per_data_dir,
    )
    stack.callback(logs.release)
    store = await _open_store(config, logs, environment)
    stack.push_async_callback(store.close)
    session = SessionWatch(store)
    # A new cluster in ZooKeeper gets a new id, never the one in a data directory: with an empty chroot, a directory of
    # another cluster would otherwise pass as this cluster's. A broker alone keeps the id of its directory.
    proposed = None if config.zookeeper_connect else logs.directories.cluster_id
    cluster_id = await ensure_cluster(store, proposed, lambda: random_uuid(environment.random_bytes))
    if config.broker_id < 0:
        known = logs.directories.known_broker_id
        logs.directories.broker_id = (
            await next_broker_id(store, config.reserved_broker_max_id) if known is None else known
        )
    logs.directories.claim(cluster_id)
    entities = EntityConfigs(store)
    await entities.start()
    stack.push_async_callback(entities.close)
    settings = BrokerSettings(entities, BrokerId(logs.directories.broker_id), config)
    await settings.reencode()
    configs = TopicConfigs(entities, settings.current.topic_defaults)
    stack.push_async_callback(configs.close)
    _apply(config, settings.current, logs, configs)
    settings.on_change(lambda before, now: _apply(before, now, logs, configs))
    return Storage(logs, store, entities, configs, StoredInstances(store), settings, cluster_id, session)


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """The settings of the log cleaner."""
    return CleanerSettings(
        is_enabled=config.log_cleaner_enable,
        threads=config.log_cleaner_threads,
        backoff_ms=config.log_cleaner_backoff_ms,
        map_bytes_max=config.log_cleaner_dedupe_buffer_size,
        load_factor=config.log_cleaner_io_buffer_load_factor,
        read_bytes=config.log_cleaner_io_buffer_size,
        io_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
    )


def _apply(before: BrokerConfig, now: BrokerConfig, logs: LogManager, configs: TopicConfigs) -> None:
    """Applies dynamic settings of the logs."""
    configs.set_defaults(now.topic_defaults)
    cleaner = cleaner_settings(now)
    if cleaner != cleaner_settings(before):
        logs.cleaner.configure(cleaner)
    logs.expire_producers_after(now.producer_id_expiration_ms)
    logs.recovery_threads = now.num_recovery_threads_per_data_dir


async def _open_store(config: BrokerConfig, logs: LogManager, environment: Environment) -> MetadataStore:
    """Opens the metadata store. Raises `DataDirectoryRefused` for a broker alone whose data directory belongs to a
    cluster but lacks the embedded store: a new, empty store would not know the topics of the logs."""
    directory = Path(config.log_dirs[0])
    is_alone = not config.zookeeper_connect
    if is_alone and logs.directories.cluster_id is not None and not environment.files.exists(directory / FILE_NAME):
        raise DataDirectoryRefused(
            f"data directory {directory} belongs to cluster {logs.directories.cluster_id}, but the cluster's metadata "
            f"({FILE_NAME}) is not in it: name the directory that has it first in log.dirs, or use an empty one"
        )
    return await environment.open_store(config)


async def load_logs(logs: LogManager, environment: Environment) -> None:
    """Recovers the logs on a thread, so that the event loop can handle signals. Ends promptly when cancelled."""
    loop = asyncio.get_running_loop()
    progress = RecoveryProgress(loop.time)
    loading = loop.run_in_executor(None, logs.load, environment.now_ms(), progress)
    try:
        await asyncio.shield(loading)
    except asyncio.CancelledError:
        progress.stop()
        with suppress(LoadingStopped):
            await loading
            logs.close(environment.now_ms())  # loading had finished before the stop
        raise
