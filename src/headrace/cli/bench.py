"""`headrace bench formats`: measures the disk space and CPU time of each message format and codec.

headrace bench formats --records 100000
headrace bench formats --chart formats.png --json > formats.json
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import formats_bench as experiment
from headrace.cli.output import print_json
from headrace.cli.shared import AsJson, UsageProblem

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _bench() -> None:
    """Run benchmarks on this machine."""


@app.command()
def formats(
    records: Annotated[int, typer.Option("--records", "-n", min=1, help="Number of records.")] = 1_000_000,
    value_bytes: Annotated[
        int, typer.Option("--value-bytes", min=1, max=1 << 20, help="Size of each value, in bytes.")
    ] = 1024,
    batch_bytes: Annotated[
        int,
        typer.Option(
            "--batch-bytes",
            min=1,
            max=64 << 20,
            help="Uncompressed size of a batch, in bytes, as batch.size of the Java producer.",
        ),
    ] = 16384,
    chart: Annotated[
        Path | None,
        typer.Option("--chart", metavar="FILE", help="Also draw the result as a PNG to this file; needs matplotlib."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure the bytes on disk and the rates of message formats v0, v1 and v2, with each codec, with and without
    keys."""
    if chart is not None:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            raise UsageProblem("--chart needs matplotlib: pip install 'headrace[demo]'") from None
    plan = experiment.BenchPlan(records, value_bytes, batch_bytes)
    todo = list(experiment.cases())
    results = []
    for number, case in enumerate(todo, 1):
        if sys.stderr.isatty():
            print(f"\r{number} of {len(todo)}: v{case.magic} {case.codec.name.lower()}\x1b[K", end="", file=sys.stderr)
        results.append(experiment.run(plan, case))
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if chart is not None:
        experiment.draw(results, plan, chart)
    if json:
        print_json({**plan._asdict(), "key_bytes": experiment.KEY_BYTES, "results": [row._asdict() for row in results]})
    else:
        _print_table(plan, results)


def _print_table(plan: experiment.BenchPlan, results: list[experiment.Result]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{plan.records:,} records of {plan.value_bytes:,} bytes, batches of {plan.batch_bytes:,} bytes"
    )
    for heading in ("keys", "codec", "format"):
        table.add_column(heading)
    for heading in ("MB on disk", "bytes a record beside its own", "encoded MB/s", "decoded MB/s"):
        table.add_column(heading, justify="right")
    before = None
    for row in results:
        if before not in (None, (row.keys, row.codec)):
            table.add_section()
        before = (row.keys, row.codec)
        table.add_row(
            "yes" if row.keys else "no",
            row.codec,
            row.format,
            f"{row.disk_bytes / 1e6:,.1f}",
            f"{row.overhead_bytes:+,.1f}",
            f"{row.encode_mb_per_s:,.0f}",
            f"{row.decode_mb_per_s:,.0f}",
        )
    Console().print(table)
