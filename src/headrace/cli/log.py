"""`headrace log dump|verify|repair|du|import`: work on the files of a data directory of headrace or Apache Kafka."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.log_import import import_logs
from headrace.cli.log_verify import du, repair, verify
from headrace.cli.output import print_json
from headrace.cli.shared import AsJson, UsageProblem
from headrace.offline.dump import dump as rows_of
from headrace.offline.dump_07 import Value
from headrace.printable import printable

app = typer.Typer(no_args_is_help=True)
app.command("import")(import_logs)
app.command("verify")(verify)
app.command("repair")(repair)
app.command("du")(du)


@app.callback()
def _log() -> None:
    """Inspect, verify and repair log files, and import them into topics."""


@app.command()
def dump(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR|FILE...")],
    deep: Annotated[
        bool, typer.Option("--deep", help="Also print records, and compare indexes with their segment.")
    ] = False,
    json: AsJson = False,
) -> int:
    """Print batches, index entries, producer snapshots and checkpoints; exit code 1 if a file is damaged."""
    damaged, file = 0, ""
    for path in paths:
        try:
            for row in rows_of(path, deep=deep):
                damaged += row["kind"] == "damage" or row.get("is_valid") is False
                if json:
                    print_json(row)
                    continue
                if row["file"] != file:
                    file = str(row["file"])
                    print(printable(file))
                print("  " + _line(row))
        except ValueError as wrong:
            raise UsageProblem(str(wrong)) from wrong
    return 1 if damaged else 0


def _line(row: Mapping[str, Value]) -> str:
    details = " ".join(f"{key}={printable(str(value))}" for key, value in row.items() if key not in ("kind", "file"))
    return f"{row['kind']:<12} {details}"
