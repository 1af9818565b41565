"""The rolling restart: restarts brokers one after the other, each only while all replicas are in sync.

    for each broker, the controller last:   wait until ready    restart    wait until it is back, and ready

The cluster is ready when every partition has all its replicas in sync, so at most one broker is down at any moment.
After a restart the cluster must be ready for some seconds without interruption, because a broker that was told to stop
may answer for a moment longer.
"""

import shlex
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum, auto
from time import monotonic, sleep
from typing import TypeAlias

from headrace.client.core.failures import DeadlineExceeded
from headrace.client.core.metadata import ClusterView
from headrace.client.operations.admin import Admin
from headrace.client.operations.health import health_of
from headrace.client.operations.selection import check_brokers
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId

_LOOK_SECONDS = 0.5
_SETTLED_LOOKS = 6


class Stage(Enum):
    """The progress of one broker's restart."""

    RESTARTING = auto()
    """The cluster can spare the broker, and its restart begins."""
    BACK = auto()
    """The broker is back, and all replicas are in sync."""


Restart: TypeAlias = Callable[[BrokerId], None]
"""Restarts one broker and returns; raises KafkaError when it could not."""


def restart_order(view: ClusterView, only: Collection[int] = ()) -> list[BrokerId]:
    """Every broker, or those of `only`, the controller last. Raises NotThere for an unknown broker."""
    check_brokers(view, only)
    chosen = (broker for broker in view.brokers if not only or broker in only)
    return sorted(chosen, key=lambda broker: (broker == view.controller, broker))


def restart_brokers(
    admin: Admin,
    order: Iterable[BrokerId],
    restart: Restart,
    *,
    timeout_s: float = 600,
    on_stage: Callable[[BrokerId, Stage], None] = lambda broker, stage: None,
) -> None:
    """Restart the brokers in this order. `timeout_s` limits each wait: DeadlineExceeded names the condition.

    After an error, its own or one of `restart`, the remaining brokers are not restarted.
    """
    for broker in order:
        _wait_until_ready(admin, broker, 1, timeout_s, f"before broker {broker} may stop")
        on_stage(broker, Stage.RESTARTING)
        restart(broker)
        _wait_until_ready(admin, broker, _SETTLED_LOOKS, timeout_s, f"after the restart of broker {broker}")
        on_stage(broker, Stage.BACK)


def command_for(template: str, broker: BrokerId, view: ClusterView) -> list[str]:
    """The command line with {broker}, {host} and {port} replaced. ValueError for another name, or an open quote."""
    address = view.brokers[broker]
    try:
        return [part.format(broker=broker, host=address.host, port=address.port) for part in shlex.split(template)]
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"{template!r}: {error}; only {{broker}}, {{host}} and {{port}} are known") from None


def run_command(broker: BrokerId, command: Sequence[str]) -> None:
    """Restart a broker by a command, without a shell. KafkaError has the last line of output of a failed command."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise KafkaError(
            f"broker {broker}: {shlex.join(command)} ended with {done.returncode}"
            f"{': ' + lines[-1] if lines else ''}; the remaining brokers were not restarted",
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )


def _wait_until_ready(admin: Admin, broker: BrokerId, looks: int, timeout_s: float, when: str) -> None:
    """Returns when the broker is up and all replicas are in sync, `looks` times in a row. Raises DeadlineExceeded."""
    deadline, seen = monotonic() + timeout_s, 0
    while True:
        try:
            view = admin.describe_cluster()
            health = health_of(view, {})
            seen = seen + 1 if broker in view.brokers and health.is_ready else 0
            wrong = f"{len(health.under_replicated)} partitions are not fully in sync"
            if broker not in view.brokers:
                wrong = "the broker is not in the cluster"
        except KafkaError as error:  # the broker that was asked may be the one that restarts
            seen, wrong = 0, str(error)
        if seen >= looks:
            return
        if monotonic() > deadline:
            raise DeadlineExceeded(f"{when}: {wrong} after {timeout_s:.0f} s; see headrace cluster why-not-ready")
        sleep(_LOOK_SECONDS)
