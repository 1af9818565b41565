"""Entry point of the command line: passes `serve` and `load` on, and runs every other command through typer.

It imports nothing before it knows the command: importing typer takes as long as the whole start of a broker.
"""

import gc
import os
import sys
from collections.abc import Sequence

_FAILED = 1
_USAGE = 2
_ALLOCATIONS = 100_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (the process's own arguments by default) names; the exit code."""
    _open_missing_streams()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
    except SystemExit:  # argparse printed its help, or what is wrong
        if _flush_output(complains=True):
            raise
        return _FAILED
    except BrokenPipeError:  # of a print without a buffer
        code = _FAILED
    return code if _flush_output(complains=code == 0) else code or _FAILED


def _open_missing_streams() -> None:
    """Opens /dev/null for standard streams that the caller has closed.

    Otherwise Python has no stream to print to, and the first file or socket that is opened takes the stream's number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # each takes the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - no pathlib here, and it stays open


def _flush_output(complains: bool) -> bool:
    """Whether everything that was printed could be written. The interpreter must not fail at that again at its exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on: that is not worth a message
        pass
    except OSError as failed:
        if complains:
            print(f"headrace: cannot write the output: {failed.strerror}", file=sys.stderr)
    else:
        return True
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return False


def _run(arguments: list[str]) -> int:
    context, arguments = _take_context(arguments)
    match arguments:
        case ["serve", *rest]:
            return _serve(rest)
        case ["load", *rest]:
            return _load(rest if context is None else ["--context", context, *rest])
        case [] | ["--help" | "-h", *_]:
            from headrace.cli.commands import usage

            print(usage())
            return 0 if arguments else _USAGE
        case ["--version" | "-V", *_]:
            from headrace import __version__

            print(f"headrace {__version__}")
            return 0
    gc.set_threshold(_ALLOCATIONS)  # nothing of what is imported dies, so looking for that costs a tenth of a command
    from headrace.cli.app import run

    return run(arguments, context)


def _take_context(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The context in `headrace --context NAME COMMAND`, and the arguments without it."""
    match arguments:
        case ["--context", name, *rest]:
            return name, rest
        case [first, *rest] if first.startswith("--context="):
            return first.partition("=")[2], rest
        case _:
            return None, arguments


def _serve(arguments: Sequence[str]) -> int:
    """A broker. Nothing dies while modules are imported, and modules live for ever, so the garbage collector is not
    asked before they are there, and never looks at them again."""
    gc.disable()
    from headrace.broker.app import main as serve

    gc.freeze()
    gc.enable()
    return serve(arguments)


def _load(arguments: Sequence[str]) -> int:
    try:
        from headrace.spark.load.load_command import main as load
    except ImportError as missing:
        print(f"headrace load: needs {missing.name}; install it with: pip install 'headrace[spark]'", file=sys.stderr)
        return 1
    return load(arguments)


if __name__ == "__main__":
    sys.exit(main())
