"""Which command? `serve` and `load` are passed on with their arguments untouched; the rest is the typer application.

Nothing is imported before the answer is known: a broker's start-up is a promise, and typer and rich cost as much as
all of it.
"""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (the process's own arguments by default) names; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    match arguments:
        case ["serve", *rest]:
            from headrace.broker.app import main as serve

            return serve(rest)
        case ["load", *rest]:
            return _load(rest)
    from headrace.cli.app import run

    return run(arguments)


def _load(arguments: Sequence[str]) -> int:
    try:
        from headrace.spark.load_command import main as load
    except ImportError as missing:
        print(f"headrace load: needs {missing.name}; install it with: pip install 'headrace[spark]'", file=sys.stderr)
        return 1
    return load(arguments)


if __name__ == "__main__":
    sys.exit(main())
