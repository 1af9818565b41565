"""The command line of `headrace serve`. Flags override the properties file, which overrides defaults.

Parsed without typer or rich: importing them costs more than the rest of the start.
"""

import argparse
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from headrace.config import BrokerProperties, decode_properties, read_broker
from headrace.errors import InvalidConfig

INSECURE = {"all": ("listeners", "metrics"), "listeners": ("listeners",), "metrics": ("metrics",), None: ()}
"""What each value of `--insecure` allows to be open to other machines."""


_SECRETS = (".password", ".jaas.config", ".keystore.key", ".secret", ".secret.key", ".master.key", ".digest")
"""The ends of the names of secret settings."""

_REFERENCE = re.compile(r"\$\{[\w.-]+:[^}]*\}")


class StartRefused(Exception):
    """The reason why the broker does not start: one line for the terminal. The exit code is 2."""


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line, as every other refusal."""

    def error(self, message: str) -> NoReturn:
        raise StartRefused(f"{message}. See headrace serve --help.")


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
    parser.add_argument(
        "--insecure",
        nargs="?",
        const="all",
        choices=("all", "listeners", "metrics"),
        metavar="WHAT",
        help="serve other machines without authentication: all (default), listeners or metrics",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=int,
        help="run N brokers on this host: ids, ports and data directories follow those of the first",
    )
    parser.add_argument("--strict", action="store_true", help="refuse unknown settings instead of warning about them")
    parser.add_argument("--explain", metavar="KEY", help="print the meaning of a setting and exit")
    return parser


class ServeOptions(NamedTuple):
    """What `headrace serve` was told."""

    properties: BrokerProperties
    insecure: Collection[str]
    """What may be open to other machines without authentication: `listeners`, `metrics`."""
    workers: int | None = None
    """How many brokers to run; None: one, in this process."""
    given: Mapping[str, str] = {}
    """The settings as text, by the names that they were given with."""
    arguments: Sequence[str] = ()
    """The arguments for a worker; settings may follow."""


def parse_options(argv: Sequence[str]) -> ServeOptions | str:
    """Reads the configuration from the arguments; returns a text instead for `--explain`. Raises `StartRefused`."""
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
        _refuse_references(properties)
        found = read_broker(properties, strict=given.strict)
        found = found._replace(warnings=(*found.warnings, *_visible_secrets(given.set)))
        return ServeOptions(found, INSECURE[given.insecure], given.workers, properties, _worker_arguments(given))
    except InvalidConfig as error:
        end = "" if error.message.endswith((".", "?")) else "."
        raise StartRefused(f"{error.message}{end} `headrace settings` lists all settings.") from error


def _worker_arguments(given: argparse.Namespace) -> list[str]:
    """The arguments without `--workers`, and without those whose settings each worker has of its own."""
    found = ["--config", given.config] if given.config is not None else []
    found += [part for pair in given.set for part in ("--set", pair)]
    found += ["--insecure", given.insecure] if given.insecure is not None else []
    return [*found, *(["--strict"] if given.strict else [])]


def _visible_secrets(pairs: Sequence[str]) -> list[str]:
    """A warning for each secret that is given with `--set`."""
    names = [pair.partition("=")[0].strip() for pair in pairs]
    return [
        f"{name} is on the command line, where every user of this machine can read it: put it into a file (--config)"
        for name in names
        if name.endswith(_SECRETS)
    ]


def _refuse_references(properties: Mapping[str, str]) -> None:
    """Raises `InvalidConfig` for a secret such as `${file:/run/secrets:key}`. A broker of Apache Kafka with
    `config.providers` would look it up; here the text itself would be the secret, and everybody could guess it."""
    for name, text in properties.items():
        if name.endswith(_SECRETS) and _REFERENCE.search(text):
            raise InvalidConfig(
                f"{name} refers to a config provider, which a broker does not ask: write the secret itself into a file "
                "that only the broker's user can read (--config)"
            )


def _explained(key: str) -> str:
    from headrace.config.explanation import explain

    try:
        return explain(key)
    except InvalidConfig as unknown:
        raise StartRefused(unknown.message) from unknown


def _file_properties(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        return decode_properties(Path(path).read_bytes())
    except OSError as error:
        raise StartRefused(f"--config {path}: {error.strerror}") from error
    except InvalidConfig as error:
        raise StartRefused(f"--config {path}: {error.message}") from error
