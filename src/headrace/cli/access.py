"""How a command reaches its cluster: `--bootstrap`, `--command-config`, `--context`, and what the environment says.

Every command with `--bootstrap` gets the other two here, and not by its signature: `with_access_options` adds them to
the finished commands. `access` then gives the address and the client's settings.
"""

import sys
from typing import Any, NamedTuple

from typer.core import TyperOption

from headrace.client.core.settings import ClientSettings, parse_addresses
from headrace.client.security.client_options import client_settings
from headrace.client.security.command_options import command_options
from headrace.printable import printable


class UsageProblem(Exception):
    """Arguments that exclude each other, or a value that cannot be parsed; exit code 2."""


class _Given:
    """The flags of the command that runs; one command runs in a process."""

    context: str | None = None
    warned: frozenset[str] = frozenset()
    """What was printed already: some commands ask for their access again for a second client."""
    command_config: str | None = None
    has_bootstrap = False


class Access(NamedTuple):
    """The address and the settings of a client."""

    bootstrap: str
    settings: ClientSettings


def access(bootstrap: str) -> Access:
    """The address and the settings for a command; `bootstrap` counts if the user gave it.

    Raises `UsageProblem`, and `InvalidConfig` for options that cannot be used.
    """
    typed = bootstrap if _Given.has_bootstrap else None
    found = command_options(typed, _Given.command_config, _Given.context)
    for warning in sorted(set(found.warnings) - _Given.warned):
        print(f"headrace: warning: {printable(warning)}", file=sys.stderr)
    _Given.warned |= set(found.warnings)
    try:
        parse_addresses(found.bootstrap)
    except ValueError as wrong:
        raise UsageProblem(f"--bootstrap: {wrong}") from None
    return Access(found.bootstrap, client_settings(found.options, ClientSettings(client_id="headrace-cli")))


def use_context(name: str | None) -> None:
    """Take the context of `headrace --context NAME COMMAND`."""
    _Given.context = name
    _Given.warned = frozenset()
    _Given.command_config, _Given.has_bootstrap = None, False


def with_access_options(command: Any) -> Any:
    """Adds `--command-config` and `--context` to a command that has `--bootstrap`, or to all commands of a group."""
    for each in getattr(command, "commands", {}).values():
        with_access_options(each)
    names = [each.name for each in command.params]
    if "bootstrap" in names:
        at = names.index("bootstrap") + 1
        command.params[at:at] = [_command_config_option(), _context_option()]
    return command


def _command_config_option() -> TyperOption:
    return TyperOption(
        param_decls=["--command-config"],
        metavar="FILE",
        envvar="HEADRACE_COMMAND_CONFIG",
        expose_value=False,
        callback=_on_command_config,
        help="A properties file with Kafka's client options, such as security.protocol.",
    )


def _context_option() -> TyperOption:
    return TyperOption(
        param_decls=["--context"],
        metavar="NAME",
        expose_value=False,
        callback=_on_context,
        help="The context to use; see headrace context.",
    )


def _on_command_config(context: Any, _parameter: Any, value: str | None) -> str | None:
    _Given.command_config = value
    return value


def _on_context(context: Any, _parameter: Any, value: str | None) -> str | None:
    if value is not None:
        _Given.context = value
    source = context.get_parameter_source("bootstrap")
    _Given.has_bootstrap = source is not None and source.name == "COMMANDLINE"
    return value
