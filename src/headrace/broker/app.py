"""`headrace serve`: the broker's process, with its arguments, signals and exit codes.

    start   settings -> data directories (locked) -> metadata store -> cluster id -> bind -> recover logs -> register
            -> controller, whose LeaderAndIsr opens the partitions -> load groups -> listen -> 'ready HOST:PORT'
    lost    (a data directory failed that the broker cannot do without) one line, exit code 1
    stop    (SIGTERM, SIGINT) move leaders away, close connections, flush and checkpoint every log, end the session

The start is budgeted (0.3 s), so this module imports nothing that the first request does not need. Message classes are
compiled at the first request of their kind.
"""

import asyncio
import errno
import fcntl
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from headrace.broker.assembly import Running, start
from headrace.broker.exposure import make_files_private, readable_directories, refuse_exposure
from headrace.broker.log_lines import log_to_stderr
from headrace.broker.options import ServeOptions, StartRefused, parse_options
from headrace.broker.partitions.log_dir_failures import DirectoryLost
from headrace.broker.workers.plan import directory_of_workers
from headrace.broker.workers.worker import own_number, stop_with_supervisor
from headrace.config import BrokerConfig, BrokerProperties
from headrace.errors import InvalidConfig, StorageError
from headrace.log.directories.data_directory import DataDirectoryRefused
from headrace.metadata.registry import BrokerIdInUse
from headrace.metadata.znodes import CorruptNode
from headrace.metastore.database import StoreInUse
from headrace.metastore.store import StoreError
from headrace.records.format2 import kernel

log = logging.getLogger(__name__)

DESCRIPTORS_AT_START = 16_384
"""The size of the table of descriptors, if the limit allows it: 128 KiB of the kernel's memory."""
_REFUSED = 2
_LOST = 1


def main(argv: Sequence[str]) -> int:
    """Runs a broker until SIGTERM or SIGINT. Returns the exit code."""
    try:
        given = parse_options(argv)
    except StartRefused as refused:
        return _print_refusal(refused)
    if isinstance(given, str):
        print(given)
        return 0
    config, worker = given.properties.config, own_number()
    log_to_stderr(config.log_format, config.log_level, worker)
    try:
        refuse_exposure(config, given.insecure)
        if given.workers is None:
            _refuse_directories_of_workers(config)
    except InvalidConfig as error:
        return _print_refusal(StartRefused(error.message))
    except StartRefused as refused:
        return _print_refusal(refused)
    if worker is None:  # else its supervisor has
        _comment(given.properties)
    make_files_private()
    _allow_many_files()
    if not kernel.COMPILED:
        log.warning(
            "the record kernel is not compiled: checking and decoding records is about a hundred times slower; install "
            "a wheel for this platform, or build the package with a C compiler"
        )
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            if given.workers is not None:
                return runner.run(_supervise(given))
            runner.run(_serve(config))
    except StartRefused as refused:
        return _print_refusal(refused)
    except DirectoryLost as lost:
        print(f"headrace serve: {lost}", file=sys.stderr)
        return _LOST
    return 0


async def _supervise(given: ServeOptions) -> int:
    """Runs several brokers. Raises `StartRefused`."""
    from headrace.broker.workers.supervisor import Supervisor

    try:
        supervisor = Supervisor(given)
    except InvalidConfig as error:
        raise StartRefused(error.message) from error
    return await supervisor.run()


def _refuse_directories_of_workers(config: BrokerConfig) -> None:
    """Raises `StartRefused` for a data directory that holds those of workers."""
    if (directory := directory_of_workers(config)) is not None:
        raise StartRefused(
            f"data directory {directory} was made by --workers: start it with --workers, or name another directory"
        )


def _comment(given: BrokerProperties) -> None:
    """Logs warnings about settings, and the settings that have no meaning here."""
    for warning in given.warnings:
        log.warning("%s", warning)
    if given.ignored:
        log.info(
            "these settings have no effect in headrace: %s; headrace serve --explain NAME gives the reason",
            ", ".join(given.ignored),
        )


def _print_refusal(refused: StartRefused) -> int:
    print(f"headrace serve: {refused}", file=sys.stderr)
    return _REFUSED


def _allow_many_files() -> None:
    """Raises the soft limit of descriptors to the hard one: each connection and each segment takes a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(ValueError, OSError):  # macOS has a hard limit that it does not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    _enlarge_descriptor_table()


def _enlarge_descriptor_table() -> None:
    """Has the kernel make the table of descriptors large now, for 8 bytes each. Linux doubles it when it is full, and a
    process of several threads, as the broker is later, waits eight milliseconds for that in the accept."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError):  # the standard input may be closed
        os.close(fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, min(soft, DESCRIPTORS_AT_START) - 1))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The event loop's constructor: uvloop's where it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def _serve(config: BrokerConfig) -> None:
    stop, ready = asyncio.Event(), asyncio.Event()
    loop, serving = asyncio.get_running_loop(), asyncio.current_task()
    assert serving is not None

    def on_signal() -> None:
        if not stop.is_set() and not ready.is_set():
            serving.cancel()  # recovery may take minutes: the first signal ends it
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    if own_number() is not None:
        stop_with_supervisor(on_signal)
    try:
        async with running(config) as (_, listeners):
            ready.set()
            for warning in readable_directories(config.log_dirs):
                log.warning("%s", warning)
            print(f"ready {listeners[0].host or '0.0.0.0'}:{listeners[0].port}", flush=True)
            await stop.wait()
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        log.info("the broker was stopped before it was ready")


@asynccontextmanager
async def running(config: BrokerConfig) -> AsyncIterator[Running]:
    """Runs a broker while the context is open. Raises `StartRefused` with the reason when the broker cannot start."""
    try:
        async with AsyncExitStack() as stack:
            yield await _started(config, stack)
    except BaseExceptionGroup as group:  # the broker's task group also wraps exceptions of the caller's body
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None


async def _started(config: BrokerConfig, stack: AsyncExitStack) -> Running:
    try:
        return await start(config, stack)
    except (InvalidConfig, DataDirectoryRefused, StorageError) as error:  # StorageError: the embedded metadata store
        raise StartRefused(error.message) from error
    except CorruptNode as error:
        raise StartRefused(f"the cluster's metadata cannot be read: {error}") from error
    except (StoreInUse, BrokerIdInUse) as error:
        raise StartRefused(str(error)) from error
    except StoreError as error:
        raise StartRefused(f"the metadata store failed: {type(error).__name__}: {error}") from error
    except OSError as error:
        advice = "; stop what listens there, or set another address" if error.errno == errno.EADDRINUSE else ""
        raise StartRefused(f"{error.filename or 'start'}: {error.strerror or error}{advice}") from error
