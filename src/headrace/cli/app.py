"""The typer application, and how its errors become one line and an exit code: 2 usage, 1 failure, 130 interrupted."""

import os
import sys
from collections.abc import Sequence

import typer

from headrace.cli import bench, cluster, consume, group, log, migrate, produce, settings, topic
from headrace.cli.output import complain
from headrace.cli.shared import UsageProblem
from headrace.client.failures import BrokerUnreachable
from headrace.errors import InvalidConfig, InvalidTopic, KafkaError

_FAILED = 1
_USAGE = 2
_INTERRUPTED = 130

app = typer.Typer(
    name="headrace",
    help="A Kafka-compatible streaming log whose pipelines run on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(topic.app, name="topic")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(cluster.app, name="cluster")
app.add_typer(settings.app, name="config")
app.add_typer(log.app, name="log")
app.add_typer(bench.app, name="bench")
app.add_typer(migrate.app, name="migrate")


@app.command("serve", help="Run a broker until it is told to stop; see headrace serve --help.")
def _serve() -> None:
    """Listed only: main.py runs it before typer is imported."""


@app.command("load", help="Load topics into a Delta table, exactly once, with Spark; see headrace load --help.")
def _load() -> None:
    """Listed only: main.py passes it on."""


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    try:
        code = app(list(arguments), prog_name="headrace", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or flushing at exit would fail again
        return _FAILED
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    except (UsageProblem, InvalidConfig, InvalidTopic) as wrong:
        complain(wrong.message if isinstance(wrong, KafkaError) else str(wrong))
        return _USAGE
    except BrokerUnreachable as gone:
        complain(f"{gone.message}; is a broker running there? `headrace serve` starts one, --bootstrap names another")
        return _FAILED
    except KafkaError as failed:
        complain(str(failed))
        return _FAILED
    except (OSError, UnicodeError) as failed:
        complain(str(failed))
        return _FAILED
    except Exception as wrong:
        message = getattr(wrong, "format_message", None)  # typer's own usage errors, whichever click they come from
        if message is None:
            raise
        complain(f"{message()} ({_help_for(wrong)})")
        return _USAGE


def _help_for(wrong: Exception) -> str:
    context = getattr(wrong, "ctx", None)
    path = getattr(context, "command_path", None) or "headrace"
    return f"see {path} --help"
