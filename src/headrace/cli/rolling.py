"""`headrace cluster roll`: brokers restarted one after the other, each only when the cluster can spare it.

    for each broker, the controller last:   wait until ready    run the command    wait until it is back, and ready

Ready is: every partition has all its replicas in sync. So at no moment more than one broker is missing. After the
command the cluster must be ready for some seconds on end, since a broker that was told to stop may answer a moment
longer.
"""

import shlex
import subprocess
import time
from typing import Annotated

import typer

from headrace.cli.output import print_json
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, UsageProblem, cluster_of
from headrace.client.admin import Admin
from headrace.client.failures import DeadlineExceeded
from headrace.client.health import health_of
from headrace.client.metadata import ClusterView
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId

_LOOK_SECONDS = 0.5
_SETTLED_LOOKS = 6


def roll(
    command: Annotated[
        str,
        typer.Option(
            "--command",
            metavar="COMMAND",
            help="Restarts one broker and returns; {broker}, {host} and {port} are filled in. No shell runs it.",
        ),
    ],
    only: Annotated[list[int], typer.Option("--broker", metavar="N", help="Only this one; repeatable.")] = [],  # noqa: B006
    timeout: Annotated[float, typer.Option(help="Seconds that each wait may take.")] = 600,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Restart brokers one after the other, waiting each time until every replica is in sync again."""
    with cluster_of(bootstrap) as cluster:
        admin = Admin(cluster)
        view = admin.describe_cluster()
        if unknown := set(only) - view.brokers.keys():
            raise UsageProblem(
                f"there is no broker {min(unknown)}; these are: {', '.join(map(str, sorted(view.brokers)))}"
            )
        order = sorted(
            (each for each in view.brokers if not only or each in only), key=lambda b: (b == view.controller, b)
        )
        commands = {broker: _command(command, broker, view) for broker in order}

        def say(text: str) -> None:
            if not json:
                print(text, flush=True)

        for broker in order:
            if dry_run:
                say(f"would restart broker {broker}: {shlex.join(commands[broker])}")
                continue
            _wait_until_ready(admin, broker, 1, timeout, f"before broker {broker} may stop")
            say(f"restarting broker {broker}")
            done = subprocess.run(
                commands[broker], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            if done.returncode:
                said = (done.stderr or done.stdout).strip().splitlines()
                raise KafkaError(
                    f"broker {broker}: {shlex.join(commands[broker])} ended with {done.returncode}"
                    f"{': ' + said[-1] if said else ''}; the brokers after it were left alone",
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                )
            _wait_until_ready(admin, broker, _SETTLED_LOOKS, timeout, f"after the restart of broker {broker}")
            say(f"broker {broker} is back, all replicas in sync")
    if json:
        print_json([{"broker": broker, "restarted": not dry_run} for broker in order])


def _command(template: str, broker: BrokerId, view: ClusterView) -> list[str]:
    address = view.brokers[broker]
    try:
        return [part.format(broker=broker, host=address.host, port=address.port) for part in shlex.split(template)]
    except (KeyError, IndexError, ValueError) as error:
        raise UsageProblem(
            f"--command {template!r}: {error}; only {{broker}}, {{host}} and {{port}} are known"
        ) from None


def _wait_until_ready(admin: Admin, broker: BrokerId, looks: int, timeout: float, when: str) -> None:
    """Returns once the broker was there, and all replicas in sync, so many times in a row. Raises DeadlineExceeded."""
    deadline, seen = time.monotonic() + timeout, 0
    while True:
        try:
            view = admin.describe_cluster()
            health = health_of(view, {})
            seen = seen + 1 if broker in view.brokers and health.is_ready else 0
            wrong = f"{len(health.under_replicated)} partitions are not fully in sync"
            if broker not in view.brokers:
                wrong = "it is not there"
        except KafkaError as error:  # the broker that was asked may be the one that restarts
            seen, wrong = 0, str(error)
        if seen >= looks:
            return
        if time.monotonic() > deadline:
            raise DeadlineExceeded(f"{when}: {wrong} after {timeout:.0f} s; see headrace cluster why-not-ready")
        time.sleep(_LOOK_SECONDS)
