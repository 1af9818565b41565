"""The options of a command: from `--command-config`, `--context`, `HEADRACE_…` variables, or the current context.

    --bootstrap, --command-config FILE     Kafka's properties; bootstrap.servers there counts without --bootstrap
    --context NAME                         a file of `contexts`
    HEADRACE_SASL_MECHANISM=PLAIN          sasl.mechanism: every client option in capitals, with _ for dots;
                                           HEADRACE_BOOTSTRAP, HEADRACE_COMMAND_CONFIG and HEADRACE_CONTEXT as the flags
    headrace context use NAME              the current context: only where none of the others says which cluster

What stands higher wins, option by option. The current context counts only alone, so that its password is not sent to an
address that was typed.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.client.security.client_options import known_options
from headrace.client.security.contexts import current_context, read_context, readable_by_others
from headrace.client.security.secrets import SecretOptions
from headrace.client.security.small_files import read_properties_file
from headrace.errors import InvalidConfig

PREFIX: Final = "HEADRACE_"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
_FAMILIES: Final = ("HEADRACE_SASL_", "HEADRACE_SSL_", "HEADRACE_SECURITY_")


@dataclass(slots=True)
class CommandOptions:
    """Where a command connects, and how. References to secrets are not resolved."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    options: dict[str, str] = field(default_factory=SecretOptions)
    references: dict[str, str] = field(default_factory=dict)
    """For each option a reference to where it is, such as `${file:/etc/kafka.properties:sasl.jaas.config}`."""
    warnings: list[str] = field(default_factory=list)

    def take(self, options: Mapping[str, str], provider: str) -> None:
        """Put `options` over those there are. `provider` is a reference without its key."""
        self.options.update(options)
        self.references.update({name: f"${{{provider}:{name}}}" for name in options})


def command_options(
    bootstrap: str | None = None,
    command_config: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> CommandOptions:
    """The options of a command with these flags; None for a flag that is not given. Raises `InvalidConfig`."""
    found = CommandOptions()
    chosen = context or environ.get("HEADRACE_CONTEXT") or None
    command_config = command_config or environ.get("HEADRACE_COMMAND_CONFIG") or None
    address = bootstrap or environ.get("HEADRACE_BOOTSTRAP") or None
    if chosen is None and command_config is None and address is None:
        chosen = current_context(environ)
    if context is None:
        if chosen is not None:
            _take_context(found, chosen, environ)
        _take_environment(found, environ)
    else:
        _take_environment(found, environ)
        _take_context(found, context, environ)
    if command_config is not None:
        _take_file(found, command_config)
    if bootstrap is not None:
        found.bootstrap = bootstrap
    return found


def environment_name(option: str) -> str:
    """The variable of an option."""
    return PREFIX + option.upper().replace(".", "_")


def _take_context(found: CommandOptions, name: str, environ: Mapping[str, str]) -> None:
    context = read_context(name, environ)
    found.take(context.options, f"context:{name}")
    if context.bootstrap is not None:
        found.bootstrap = context.bootstrap
    if context.warning is not None:
        found.warnings.append(context.warning)


def _take_environment(found: CommandOptions, environ: Mapping[str, str]) -> None:
    names = {environment_name(option): option for option in known_options()}
    for variable in sorted(environ):
        option = names.get(variable)
        if option is not None:
            found.options[option] = environ[variable]
            found.references[option] = f"${{env:{variable}}}"
        elif variable.startswith(_FAMILIES):
            raise InvalidConfig(f"the environment variable {variable} is no option of a client: remove it")
    if environ.get("HEADRACE_BOOTSTRAP"):
        found.bootstrap = environ["HEADRACE_BOOTSTRAP"]


def _take_file(found: CommandOptions, path_text: str) -> None:
    path = Path(path_text).expanduser().absolute()
    options = SecretOptions(read_properties_file("--command-config", path))
    servers = options.pop("bootstrap.servers", None)
    found.take(options, f"file:{path}")
    if servers:
        found.bootstrap = servers
    warning = readable_by_others(path, options)
    if warning is not None:
        found.warnings.append(warning)
