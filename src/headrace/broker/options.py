"""The command line of `headrace serve`: flags over a properties file over defaults.

Read without typer or rich, which would cost more than the rest of the start.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from headrace.config import BrokerConfig, parse_broker, read_properties
from headrace.errors import InvalidConfig


class Refused(Exception):
    """Why the broker does not start: one line, for the terminal. Exit code 2."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with an argument in one line, as everything else that is refused."""

    def error(self, message: str) -> NoReturn:
        raise Refused(f"{message}. See headrace serve --help.")


def build_parser() -> argparse.ArgumentParser:
    """Every option of the command, with its help."""
    parser = _Parser(prog="headrace serve", description="Run a broker until it is told to stop.")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where to listen (default 127.0.0.1:9092; port 0: any)")
    parser.add_argument("--data", metavar="DIR", help="where the log is (default headrace-data)")
    parser.add_argument("--broker-id", metavar="N", help="this broker's number (default 0; -1: any)")
    parser.add_argument("--zookeeper", metavar="HOSTS", help="HOST:PORT,...[/PATH]: the ensemble of the cluster")
    parser.add_argument("--config", metavar="FILE", help="a properties file with Kafka's setting names")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="one setting; may be given many times"
    )
    return parser


def parse_options(argv: Sequence[str]) -> BrokerConfig:
    """The configuration that the arguments give. Raises `Refused`."""
    given = build_parser().parse_args(argv)
    try:
        properties = _file_properties(given.config)
        for pair in given.set:
            key, equals, value = pair.partition("=")
            if not equals or not key:
                raise InvalidConfig(f"--set {pair!r} is not KEY=VALUE")
            properties[key.strip()] = value
        for flag, key in (("listen", "listeners"), ("data", "log.dirs"), ("broker_id", "broker.id"),
                          ("zookeeper", "zookeeper.connect")):  # fmt: skip
            if getattr(given, flag) is not None:
                properties[key] = getattr(given, flag)
        return parse_broker(properties)
    except InvalidConfig as error:
        raise Refused(f"{error.message}. See docs/settings.md for what there is.") from error


def _file_properties(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        return read_properties(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Refused(f"--config {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Refused(f"--config {path}: not a UTF-8 text file") from error
