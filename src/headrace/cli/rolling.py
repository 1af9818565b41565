"""`headrace cluster roll`: restarts brokers one after the other, by a command."""

import shlex
from typing import Annotated

import typer

from headrace.cli.output import print_json
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, UsageProblem, cluster_of
from headrace.client.operations.admin import Admin
from headrace.client.operations.rolling_restart import Stage, command_for, restart_brokers, restart_order, run_command
from headrace.types import BrokerId


def roll(
    command: Annotated[
        str,
        typer.Option(
            "--command",
            metavar="COMMAND",
            help="The command that restarts one broker and returns. {broker}, {host} and {port} are replaced. It "
            "is run without a shell.",
        ),
    ],
    only: Annotated[
        list[int],
        typer.Option("--broker", metavar="N", help="Only this broker id; repeatable. Without it, all brokers."),
    ] = [],  # noqa: B006
    timeout: Annotated[float, typer.Option(help="Maximum duration of each wait, in seconds.")] = 600,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Restart brokers one after the other, and wait after each until all replicas are in sync."""

    def say(text: str) -> None:
        if not json:
            print(text, flush=True)

    def on_stage(broker: BrokerId, stage: Stage) -> None:
        if stage is Stage.RESTARTING:
            say(f"restarting broker {broker}")
        else:
            say(f"broker {broker} is back, all replicas are in sync")

    with cluster_of(bootstrap) as cluster:
        admin = Admin(cluster)
        view = admin.describe_cluster()
        try:
            order = restart_order(view, only)
        except ValueError as wrong:
            raise UsageProblem(str(wrong)) from None
        try:
            commands = {broker: command_for(command, broker, view) for broker in order}
        except ValueError as wrong:
            raise UsageProblem(f"--command {wrong}") from None
        if dry_run:
            for broker in order:
                say(f"would restart broker {broker}: {shlex.join(commands[broker])}")
        else:
            restart_brokers(
                admin,
                order,
                lambda broker: run_command(broker, commands[broker]),
                timeout_s=timeout,
                on_stage=on_stage,
            )
    if json:
        print_json([{"broker": broker, "restarted": not dry_run} for broker in order])
