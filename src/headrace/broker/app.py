"""`headrace serve`: the process around a broker: its arguments, signals, exit code, and why it would not start.

    start   settings -> data directories (locked) -> tree -> cluster id -> recover logs -> bind -> register
            -> controller, whose LeaderAndIsr opens the partitions -> load groups -> listen -> 'ready HOST:PORT'
    lost    (a data directory failed that it cannot do without) one line, exit code 1
    stop    (SIGTERM, SIGINT) no more connections; flush and checkpoint every log; leave the tree

Start-up is a promise (half a second), so nothing here imports what the first request does not need; message classes
are compiled when the first request of their kind comes.
"""

import asyncio
import logging
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from headrace.broker.assembly import Running, start
from headrace.broker.log_dir_failures import DirectoryLost
from headrace.broker.log_lines import log_to_stderr
from headrace.broker.options import Refused, parse_options
from headrace.config import BrokerConfig
from headrace.coordination.embedded import TreeInUse
from headrace.coordination.paths import CorruptNode
from headrace.coordination.registry import BrokerIdInUse
from headrace.coordination.tree import TreeError
from headrace.errors import InvalidConfig, StorageError
from headrace.log.data_directory import DataDirectoryRefused
from headrace.records import kernel

log = logging.getLogger(__name__)

_REFUSED = 2
_LOST = 1


def main(argv: Sequence[str]) -> int:
    """Runs a broker until SIGTERM or SIGINT; the exit code."""
    try:
        config = parse_options(argv)
    except Refused as refused:
        return _say(refused)
    log_to_stderr(config.log_format, config.log_level)
    _allow_many_files()
    if not kernel.COMPILED:
        log.warning("the record kernel is not compiled: checking and decoding records is about a hundred times slower")
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(config))
    except Refused as refused:
        return _say(refused)
    except DirectoryLost as lost:
        print(f"headrace serve: {lost}", file=sys.stderr)
        return _LOST
    return 0


def _say(refused: Refused) -> int:
    print(f"headrace serve: {refused}", file=sys.stderr)
    return _REFUSED


def _allow_many_files() -> None:
    """Every connection and every segment is a descriptor: takes all that this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(ValueError, OSError):  # macOS has a hard limit that it does not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes the event loops that a broker runs on: uvloop's, where that is installed."""
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
            serving.cancel()  # recovery can take long
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        async with running(config) as (_, listeners):
            ready.set()
            print(f"ready {listeners[0].host}:{listeners[0].port}", flush=True)
            await stop.wait()
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        log.info("stopped before it was ready")


@asynccontextmanager
async def running(config: BrokerConfig) -> AsyncIterator[Running]:
    """A broker, from locked directories to open sockets, and back at the end. Raises `Refused`: why it cannot start."""
    try:
        async with AsyncExitStack() as stack:
            yield await _started(config, stack)
    except BaseExceptionGroup as group:  # the broker's task group wraps also what its user raised
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None


async def _started(config: BrokerConfig, stack: AsyncExitStack) -> Running:
    try:
        return await start(config, stack)
    except (InvalidConfig, DataDirectoryRefused, StorageError) as error:  # the last one is the tree's
        raise Refused(error.message) from error
    except CorruptNode as error:
        raise Refused(f"the cluster's metadata: {error}") from error
    except (TreeInUse, BrokerIdInUse) as error:
        raise Refused(str(error)) from error
    except TreeError as error:
        raise Refused(f"the cluster's tree: {type(error).__name__}: {error}") from error
    except OSError as error:
        raise Refused(f"{error.filename or 'start'}: {error.strerror or error}") from error
