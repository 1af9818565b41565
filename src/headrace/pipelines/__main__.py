"""`python -m headrace.pipelines COMMAND`: the pipelines beside a broker.

site --bootstrap HOST:PORT                        make the topics, and send a simulated site's events
site --bootstrap HOST:PORT --live                 the same, at the pace of the site, from now on
run NAME… --bootstrap HOST:PORT --checkpoints DIR run these pipelines until Ctrl-C
page --bootstrap HOST:PORT --port 8017            the live page of `operations`
"""

import argparse
import dataclasses
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.pipelines.events import PER_BATCH
from headrace.pipelines.operations_page import LivePage
from headrace.pipelines.running import PIPELINES, run
from headrace.pipelines.site import Site
from headrace.pipelines.topics import create_topics, produce


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command. Returns the exit code."""
    arguments = _parser().parse_args(argv)
    with suppress(KeyboardInterrupt):
        arguments.command(arguments)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m headrace.pipelines", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    beside_broker = argparse.ArgumentParser(add_help=False)
    beside_broker.add_argument("--bootstrap", default="127.0.0.1:9092", metavar="HOST:PORT")

    site = commands.add_parser("site", parents=[beside_broker], help="send the events of a simulated site")
    site.add_argument("--seed", type=int, default=1)
    site.add_argument("--rate", type=int, default=2000, help="ordinary events a second (default 2000)")
    site.add_argument("--seconds", type=int, default=480, help="of the site (default 480)")
    site.add_argument("--live", action="store_true", help="at the pace of the site, from now on")
    site.set_defaults(command=_site)

    running = commands.add_parser("run", parents=[beside_broker], help="run pipelines")
    running.add_argument("names", nargs="+", choices=list(PIPELINES), metavar="NAME", help=", ".join(PIPELINES))
    running.add_argument("--checkpoints", type=Path, required=True, metavar="DIR", help="where the progress is kept")
    running.add_argument("--per-batch", type=int, default=PER_BATCH, metavar="N", help="records of a batch at most")
    running.set_defaults(command=_run)

    page = commands.add_parser("page", parents=[beside_broker], help="serve the live page of operations")
    page.add_argument("--port", type=int, default=8017)
    page.set_defaults(command=_page)
    return parser


def _site(arguments: argparse.Namespace) -> None:
    site = Site(arguments.seed, arguments.seconds, arguments.rate)
    if arguments.live:
        site = dataclasses.replace(site, start=datetime.now(UTC) + timedelta(seconds=1))
    create_topics(arguments.bootstrap)
    print(produce(arguments.bootstrap, site.events(), as_they_come=arguments.live), "events")


def _run(arguments: argparse.Namespace) -> None:
    create_topics(arguments.bootstrap)
    run(arguments.names, arguments.bootstrap, arguments.checkpoints, per_batch=arguments.per_batch)


def _page(arguments: argparse.Namespace) -> None:
    page = LivePage(arguments.bootstrap, arguments.port)
    print(page.address, flush=True)
    try:
        threading.Event().wait()
    finally:
        page.close()


if __name__ == "__main__":
    sys.exit(main())
