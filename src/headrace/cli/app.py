"""The typer application. It turns errors into one line and an exit code: 2 usage, 1 failure, 130 interrupted."""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import typer

from headrace.cli.access import UsageProblem, use_context, with_access_options
from headrace.cli.commands import COMMANDS
from headrace.cli.output import complain
from headrace.client.core.failures import BrokerUnreachable, SecurityMismatch
from headrace.errors import ErrorCode, InvalidConfig, InvalidTopic, KafkaError

_FAILED = 1
_USAGE = 2
_INTERRUPTED = 130

_ADVICE = {
    ErrorCode.SECURITY_DISABLED: "; set authorizer.class.name on the brokers, see `headrace settings`",
}
"""What to do about an error of a broker whose message, which is Apache Kafka's, does not say it."""


def make_app(names: Iterable[str]) -> typer.Typer:
    """The application with these commands. It imports only their modules."""
    app = typer.Typer(
        name="headrace",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_has_commands)
    for name in names:
        command = COMMANDS[name]
        found = getattr(import_module(command.module), command.attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, help=command.help)
        else:
            app.command(name, help=command.help)(found)
    return app


def _has_commands() -> None:
    """Without a callback typer would take the only command of an application for the application."""


def make_command(names: Iterable[str]) -> Any:
    """The finished command line with these commands."""
    return with_access_options(typer.main.get_command(make_app(names)))


def run(arguments: Sequence[str], context: str | None = None) -> int:
    """Run the command that the first argument names, with a context; the exit code."""
    name = arguments[0]
    if name not in COMMANDS:
        complain(f"unknown command {name!r}{_nearest(name)} (see headrace --help)")
        return _USAGE
    try:
        use_context(context)
        code = make_command([name])(list(arguments), prog_name="headrace", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        return _FAILED
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    except (UsageProblem, InvalidConfig, InvalidTopic) as wrong:
        complain(wrong.message if isinstance(wrong, KafkaError) else str(wrong))
        return _USAGE
    except SecurityMismatch as refused:
        complain(refused.message)
        return _FAILED
    except BrokerUnreachable as gone:
        other = "--from and --to name others" if name == "mirror" else "--bootstrap names another"
        complain(f"{gone.message}; is a broker running there? `headrace serve` starts one, {other}")
        return _FAILED
    except KafkaError as failed:
        complain(f"{failed}{_ADVICE.get(failed.code, '')}")
        return _FAILED
    except OSError as failed:
        reason = failed.strerror or str(failed)
        complain(f"{failed.filename}: {reason}" if failed.filename else reason)
        return _FAILED
    except UnicodeError as failed:
        complain(str(failed))
        return _FAILED
    except Exception as wrong:
        message = getattr(wrong, "format_message", None)  # typer's own usage errors, whichever click they come from
        if message is None:
            raise
        if type(wrong).__name__ == "NoArgsIsHelpError":  # its message is the help of a group of commands
            print(message(), file=sys.stderr)
            return _USAGE
        complain(f"{message()} ({_help_for(wrong)})")
        return _USAGE


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _help_for(wrong: Exception) -> str:
    context = getattr(wrong, "ctx", None)
    path = getattr(context, "command_path", None) or "headrace"
    return f"see {path} --help"
