"""The command line of `headrace serve`. Flags override the properties file, which overrides defaults.

Parsed without typer or rich: importing them costs more than the rest of the start.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from headrace.config import BrokerProperties, decode_properties, read_broker
from headrace.errors import InvalidConfig


class Refused(Exception):
    """The reason why the broker does not start: one line for the terminal. The exit code is 2."""


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line, as every other refusal."""

    def error(self, message: str) -> NoReturn:
        raise Refused(f"{message}. See headrace serve --help.")


def _help_formatter(prog: str) -> argparse.HelpFormatter:
    """A formatter as wide as the terminal. argparse would ask shutil for the width at every start, and shutil imports
    bz2 and lzma."""
    try:
        columns = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size().columns
    except (ValueError, OSError):
        columns = 80
    return argparse.HelpFormatter(prog, width=columns - 2)


def build_parser() -> argparse.ArgumentParser:
    """The argument parser of the command."""
    parser = _Parser(
        prog="headrace serve", description="Run a broker until it is stopped.", formatter_class=_help_formatter
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="the address to listen on (default 127.0.0.1:9092; port 0 takes any free port)",
    )
    parser.add_argument("--data", metavar="DIR", help="the data directory (default headrace-data)")
    parser.add_argument(
        "--broker-id", metavar="N", help="the id of this broker (default 0; -1 lets the cluster assign one)"
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOSTS",
        help="the ZooKeeper ensemble of the cluster, HOST:PORT,...[/CHROOT] (default none: a cluster of one broker)",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="a properties file with settings, such as Kafka's server.properties"
    )
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="a setting; repeatable, and overrides --config"
    )
    parser.add_argument("--strict", action="store_true", help="refuse unknown settings instead of warning about them")
    parser.add_argument("--explain", metavar="KEY", help="print the meaning of a setting and exit")
    return parser


def parse_options(argv: Sequence[str]) -> BrokerProperties | str:
    """Reads the configuration from the arguments; returns a text instead for `--explain`. Raises `Refused`."""
    given = build_parser().parse_args(argv)
    if given.explain is not None:
        return _explained(given.explain)
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
        return read_broker(properties, strict=given.strict)
    except InvalidConfig as error:
        end = "" if error.message.endswith((".", "?")) else "."
        raise Refused(f"{error.message}{end} `headrace settings` lists all settings.") from error


def _explained(key: str) -> str:
    from headrace.config.explanation import explain

    try:
        return explain(key)
    except InvalidConfig as unknown:
        raise Refused(unknown.message) from unknown


def _file_properties(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        return decode_properties(Path(path).read_bytes())
    except OSError as error:
        raise Refused(f"--config {path}: {error.strerror}") from error
    except InvalidConfig as error:
        raise Refused(f"--config {path}: {error.message}") from error
