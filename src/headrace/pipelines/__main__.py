"""`python -m headrace.pipelines COMMAND`: the pipelines beside a broker.

site --bootstrap HOST:PORT                        make the topics, and send a simulated site's events
site --bootstrap HOST:PORT --live                 the same, at the pace of the site, from now on
run NAME… --bootstrap HOST:PORT --directory DIR   run these pipelines until Ctrl-C
page --bootstrap HOST:PORT --port 8017            the live page of `operations`
all --output DIR                                  everything with a broker of its own, compared with plain Python
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
from headrace.pipelines.running import HOUR_S, MASTER, PIPELINES, PipelineEnvironment, run
from headrace.pipelines.site import Site
from headrace.pipelines.topics import create_topics, produce


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command. Returns the exit code."""
    arguments = _parser().parse_args(argv)
    with suppress(KeyboardInterrupt):
        return int(arguments.command(arguments) or 0)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m headrace.pipelines", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    beside_broker = argparse.ArgumentParser(add_help=False)
    beside_broker.add_argument("--bootstrap", default="127.0.0.1:9092", metavar="HOST:PORT")

    of_site = argparse.ArgumentParser(add_help=False)
    of_site.add_argument("--seed", type=int, default=1)
    of_site.add_argument("--rate", type=int, default=2000, help="ordinary events a second (default 2000)")
    of_site.add_argument("--seconds", type=int, default=480, help="of the site (default 480)")

    site = commands.add_parser("site", parents=[beside_broker, of_site], help="send the events of a simulated site")
    site.add_argument("--live", action="store_true", help="at the pace of the site, from now on")
    site.set_defaults(command=_site)

    running = commands.add_parser("run", parents=[beside_broker], help="run pipelines")
    running.add_argument("names", nargs="+", choices=list(PIPELINES), metavar="NAME", help=", ".join(PIPELINES))
    running.add_argument("--directory", type=Path, required=True, metavar="DIR", help="for checkpoints and tables")
    running.add_argument("--per-batch", type=int, default=PER_BATCH, metavar="N", help="records of a batch at most")
    running.add_argument("--every", type=float, default=HOUR_S, metavar="S", help="seconds between reports (an hour)")
    running.add_argument("--since", type=_time, metavar="TIME", help="tables begin with what arrived at this time")
    running.add_argument("--master", default=MASTER, help=f"of Spark (default {MASTER})")
    running.set_defaults(command=_run)

    page = commands.add_parser("page", parents=[beside_broker], help="serve the live page of operations")
    page.add_argument("--port", type=int, default=8017)
    page.set_defaults(command=_page)

    everything = commands.add_parser("all", parents=[of_site], help="run all on a simulated site and the flights")
    everything.add_argument("--output", type=Path, required=True, metavar="DIR", help="for pictures")
    everything.set_defaults(command=_all)
    return parser


def _time(text: str) -> datetime:
    """A time without a zone is UTC's."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _site(arguments: argparse.Namespace) -> None:
    site = Site(arguments.seed, arguments.seconds, arguments.rate)
    if arguments.live:
        site = dataclasses.replace(site, start=datetime.now(UTC) + timedelta(seconds=1))
    create_topics(arguments.bootstrap)
    print(produce(arguments.bootstrap, site.events(), as_they_come=arguments.live), "events")


def _run(arguments: argparse.Namespace) -> None:
    create_topics(arguments.bootstrap)
    place = PipelineEnvironment(arguments.bootstrap, arguments.directory, arguments.per_batch)
    run(arguments.names, place, every_s=arguments.every, since=arguments.since, master=arguments.master)


def _page(arguments: argparse.Namespace) -> None:
    page = LivePage(arguments.bootstrap, arguments.port)
    print(page.address, flush=True)
    try:
        threading.Event().wait()
    finally:
        page.close()


def _all(arguments: argparse.Namespace) -> int:
    from headrace.pipelines.showcase import show_all  # the other commands need no terminal

    site = Site(arguments.seed, arguments.seconds, arguments.rate)
    return 0 if show_all(site, arguments.output) else 1


if __name__ == "__main__":
    sys.exit(main())
