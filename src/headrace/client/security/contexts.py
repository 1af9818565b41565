"""Contexts: named sets of options in files, so that `headrace --context prod topic list` needs no others.

    ~/.config/headrace/prod.toml            $XDG_CONFIG_HOME/headrace, where that is set
        bootstrap = "kafka1:9093,kafka2:9093"
        [options]
        "security.protocol" = "SASL_SSL"
        "ssl.truststore.location" = "/etc/kafka/ca.pem"
        "sasl.mechanism" = "SCRAM-SHA-512"
        "sasl.jaas.config" = "${file:/run/secrets/kafka.properties:jaas}"

    ~/.config/headrace/current-context      the name that `headrace context use` chose

Quoted names and nested tables are the same: `sasl.mechanism = "PLAIN"` without quotes is the option `sasl.mechanism`.
A file with secrets that others can read is reported in `Context.warning`.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from headrace.client.security.secrets import SecretOptions, holds_secret
from headrace.client.security.small_files import read_small_file
from headrace.errors import InvalidConfig

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_KEYS: Final = ("bootstrap", "options")
_CURRENT: Final = "current-context"


class Context(NamedTuple):
    """A context as its file has it; references to secrets are not resolved."""

    name: str
    path: Path
    bootstrap: str | None
    options: Mapping[str, str]
    warning: str | None


def directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the contexts are."""
    base = environ.get("XDG_CONFIG_HOME", "")
    home = Path(base) if base.startswith("/") else Path("~/.config").expanduser()
    return home / "headrace"


def context_names(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The names of all contexts."""
    try:
        return sorted(path.stem for path in directory(environ).glob("*.toml") if _NAME.fullmatch(path.stem))
    except OSError:
        return []


def current_context(environ: Mapping[str, str] = os.environ) -> str | None:
    """The chosen context; None if none is."""
    try:
        return (directory(environ) / _CURRENT).read_text().strip() or None
    except OSError:
        return None


def use_context(name: str | None, environ: Mapping[str, str] = os.environ) -> None:
    """Choose a context for commands that name none; None chooses none. Raises `InvalidConfig`."""
    path = directory(environ) / _CURRENT
    if name is None:
        path.unlink(missing_ok=True)
        return
    read_context(name, environ)
    path.write_text(f"{name}\n")


def read_context(name: str, environ: Mapping[str, str] = os.environ) -> Context:
    """A context. Raises `InvalidConfig`, which names the file."""
    import tomllib

    if not _NAME.fullmatch(name):
        raise InvalidConfig(f"context {name!r}: use letters, digits, dots, dashes and underscores")
    path = directory(environ) / f"{name}.toml"
    if not path.exists():
        known = ", ".join(context_names(environ)) or "none"
        raise InvalidConfig(f"there is no context {name!r}: {path} does not exist; known are: {known}")
    data = read_small_file(f"context {name}", path)
    try:
        parsed = tomllib.loads(data.decode())
    except (ValueError, UnicodeDecodeError) as error:
        position = re.search(r"\(at [^)]*\)", str(error))  # the text around it may be a secret
        raise InvalidConfig(f"{path} is not TOML{f' {position[0]}' if position else ''}") from None
    unknown = sorted(parsed.keys() - set(_KEYS))
    if unknown:
        raise InvalidConfig(f"{path}: {unknown[0]!r} is neither {' nor '.join(_KEYS)}; options are in [options]")
    bootstrap, table = parsed.get("bootstrap"), parsed.get("options", {})
    if not isinstance(bootstrap, str | None) or not isinstance(table, dict):
        raise InvalidConfig(f"{path}: bootstrap is text, and options is a table")
    options = SecretOptions(_flat(path, table, ""))
    return Context(name, path, bootstrap, options, readable_by_others(path, options))


def readable_by_others(path: Path, options: Mapping[str, str]) -> str | None:
    """A warning if a file with secrets can be read by others than its owner."""
    if not any(holds_secret(name, value) for name, value in options.items()):
        return None
    mode = path.stat().st_mode
    if not mode & (stat.S_IRGRP | stat.S_IROTH):
        return None
    return f"{path} has secrets and other users can read it (mode {stat.S_IMODE(mode):04o}): chmod 600 {path}"


def _flat(path: Path, table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        match value:
            case dict():
                yield from _flat(path, value, f"{name}.")
            case bool():
                yield name, str(value).lower()
            case str() | int() | float():
                yield name, str(value)
            case list() if all(isinstance(each, str) for each in value):
                yield name, ",".join(value)
            case _:
                raise InvalidConfig(f"{path}: option {name} is neither text nor a number, nor a list of texts")
