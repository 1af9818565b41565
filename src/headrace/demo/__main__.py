"""`python -m headrace.demo [--quick]`: runs the demo in ./demo-output and suggests commands to try next."""

import argparse
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from headrace.demo.flights import FLIGHTS, QUICK_FLIGHTS, find_data_file
from headrace.demo.loads import Loads
from headrace.demo.server import running_broker, serve_command
from headrace.demo.story import Story
from headrace.errors import KafkaError

MARKER = ".made-by-headrace-demo"


def main() -> int:
    """The exit code: 0 when every record is in the table exactly once."""
    arguments = _parse()
    console = Console(highlight=False)
    try:
        find_data_file()
        _make_room(arguments.output)
    except OSError as problem:
        return _give_up(console, problem, 2)
    try:
        return _run(console, arguments)
    except (RuntimeError, KafkaError) as problem:
        return _give_up(console, problem, 1)
    except KeyboardInterrupt:
        return _give_up(console, "interrupted", 130)


def _give_up(console: Console, problem: object, code: int) -> int:
    console.print(f"headrace demo: {problem}", markup=False, soft_wrap=True)
    return code


def _run(console: Console, arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    flights = QUICK_FLIGHTS if arguments.quick else FLIGHTS
    console.print(f"[bold]headrace[/bold]: {flights:,} flights, from a socket to a Spark table, exactly once\n")
    data, log_file = arguments.output / "broker", arguments.output / "broker.log"
    broker = nullcontext(arguments.bootstrap) if arguments.bootstrap else running_broker(data, log_file)
    with broker as bootstrap:
        console.print(f"broker ready at {bootstrap} after {time.monotonic() - started:.2f} s")
        story = Story(console, bootstrap, arguments.topic, flights, arguments.output)
        is_exact = story.run()
    shutil.rmtree(arguments.output / "work")
    console.print(f"\nDone in {time.monotonic() - started:.0f} s. Chart: {story.chart}\n", soft_wrap=True)
    if not arguments.bootstrap:
        _say_what_to_try(console, story, data)
    return 0 if is_exact else 1


def _say_what_to_try(console: Console, story: Story, data: Path) -> None:
    loads = Loads(story.bootstrap, story.topic, story.table, story.output)
    at = ["--bootstrap", story.bootstrap]
    console.print("[bold]Try next[/bold] (the broker has stopped; its data is kept)")
    for why, command in (
        ("serve it again", serve_command(data, story.bootstrap)),
        (
            "look at the last five flights of each partition",
            ["headrace", "consume", story.topic, "--from", "-5", "--exit", *at],
        ),
        ("load what is new: nothing, until you produce more", loads.command()),
        ("see the bytes on disk", ["headrace", "log", "dump", str(data / f"{story.topic}-1")]),
    ):
        console.print(f"  # {why}\n  {typed(command)}", soft_wrap=True, markup=False)
    console.print("and in PySpark, with the broker running")
    source = f'spark.read.format("headrace").option("kafka.bootstrap.servers", "{story.bootstrap}")'
    console.print(f'  {source}.option("subscribe", "{story.topic}").load()', soft_wrap=True, markup=False)


def typed(command: Sequence[str]) -> str:
    """A command as one types it: `headrace` by its path where the shell would not find it."""
    program = command[0] if shutil.which(command[0]) else str(Path(sys.executable).with_name(command[0]))
    return shlex.join([program, *command[1:]])


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m headrace.demo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"load only the first {QUICK_FLIGHTS:,} flights")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="directory for all output of the demo")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="use this running broker instead of starting one")
    parser.add_argument("--topic", default="flights", help="the topic to create (default flights)")
    arguments = parser.parse_args()
    arguments.output = arguments.output.absolute()
    return arguments


def _make_room(output: Path) -> None:
    """An empty directory with our mark; only what an earlier demo made is removed."""
    if output.exists() and any(output.iterdir()):
        if not (output / MARKER).exists():
            raise FileExistsError(f"{output} holds other files; choose another place with --output")
        shutil.rmtree(output)
    output.mkdir(parents=True, exist_ok=True)
    (output / MARKER).touch()


if __name__ == "__main__":
    sys.exit(main())
