"""`headrace lake add|run|list|describe|remove`: the tables that topics are written to, without Spark."""

import json as json_text
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import lake_run
from headrace.cli.lake_library import defined, library
from headrace.cli.output import Json, print_json, print_table
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, UsageProblem, cluster_of
from headrace.client.operations.admin import Admin
from headrace.config.lake_definition import DATA_LOSS, FORMATS, LakeDefinition
from headrace.errors import ErrorCode, KafkaError
from headrace.lake.definitions import Definitions
from headrace.printable import printable
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.lake.delta.delta_table import LoadTable

app = typer.Typer(no_args_is_help=True)
app.command("run")(lake_run.run)

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]


@app.command()
def add(
    topic: Topic,
    table: Annotated[
        str,
        typer.Option(metavar="PATH|URI", help="Where the table is: a directory, or s3://, gs:// or az:// and a path."),
    ],
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|infer",
            help="Values are JSON objects, and their fields are columns: those of a schema file, or those found in the "
            "values. Without it, values are bytes.",
        ),
    ] = None,
    table_format: Annotated[str, typer.Option("--format", metavar="delta", help="The format of the table.")] = "delta",
    headers: Annotated[bool, typer.Option("--headers", help="Write the headers of records, too.")] = False,
    data_loss: Annotated[
        str,
        typer.Option(
            metavar="stop|record",
            help="If records are deleted before the table has them: stop, or go on and record the hole.",
        ),
    ] = "stop",
    job: Annotated[
        str,
        typer.Option(metavar="NAME", help="The name of the progress in the table, as headrace load --job."),
    ] = "load",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Define the lake table of a topic. `headrace lake run` writes it."""
    _check_choices(table_format, data_loss)
    definition = LakeDefinition(
        table=_absolute(table),
        values="raw" if schema is None else "json",
        schema=_schema(schema),
        headers=headers,
        job=job,
        data_loss=data_loss,
    )
    _check_usable(definition)
    with cluster_of(bootstrap) as cluster:
        definitions = Definitions(cluster)
        if (known := definitions.of(topic)) is not None and known != definition:
            raise KafkaError(
                f"topic {topic} has the lake table {known.table}: remove it first (its rows stay)",
                ErrorCode.DUPLICATE_RESOURCE,
            )
        definitions.put(topic, definition, validate_only=dry_run)
    if json:
        print_json({**_as_json(topic, definition), "dry_run": dry_run})
    else:
        print(f"{'would add' if dry_run else 'added'} lake table {definition.table} of topic {topic}")


@app.command("list")
def list_tables(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """List the topics that have a lake table."""
    with cluster_of(bootstrap) as cluster:
        found = Definitions(cluster).all()
    if json:
        print_json([_as_json(topic, one) for topic, one in found.items()])
        return
    rows = [(topic, one.format, one.values, one.data_loss, printable(one.table)) for topic, one in found.items()]
    print_table(["TOPIC", "FORMAT", "VALUES", "DATA-LOSS", "TABLE"], rows)


@app.command()
def describe(topic: Topic, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """Show the lake table of a topic: its definition, and how far it is behind each partition."""
    with cluster_of(bootstrap) as cluster:
        definition = defined(cluster, topic)
        partitions = Admin(cluster).partitions_of(topic)
        ends = Admin(cluster).watermarks(partitions, isolation_level=1)
    table = _open(definition)
    rows = [_partition(definition, table, one, int(ends[one][1])) for one in partitions]
    facts: dict[str, Json] = {
        "exists": table is not None,
        "table_version": table.version if table is not None else None,
        "rows": table.rows if table is not None else None,
        "files": table.file_count if table is not None else None,
        "partitions": [dict(row) for row in rows],
    }
    if json:
        print_json({**_as_json(topic, definition), **facts})
        return
    shown = {**_as_json(topic, definition), **{key: facts[key] for key in ("table_version", "rows", "files")}}
    print_table(
        ["FIELD", "VALUE"], [(key, "-" if value is None else printable(str(value))) for key, value in shown.items()]
    )
    print()
    columns = ("partition", "next", "end", "lag", "lost")
    print_table([name.upper() for name in columns], [[_shown(row[name]) for name in columns] for row in rows])


@app.command()
def remove(
    topic: Topic, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, dry_run: DryRun = False, json: AsJson = False
) -> None:
    """Forget the lake table of a topic. The table and its rows stay, and can be added again."""
    with cluster_of(bootstrap) as cluster:
        definition = defined(cluster, topic)
        Definitions(cluster).remove(topic, validate_only=dry_run)
    if json:
        print_json({**_as_json(topic, definition), "dry_run": dry_run})
    else:
        print(f"{'would remove' if dry_run else 'removed'} the definition of {definition.table}; the table stays")


def _check_choices(table_format: str, data_loss: str) -> None:
    if table_format == "iceberg":
        raise UsageProblem("--format iceberg: Iceberg tables cannot be written yet, only delta")
    if table_format not in FORMATS:
        raise UsageProblem(f"--format {table_format}: expected {' or '.join(FORMATS)}")
    if data_loss not in DATA_LOSS:
        raise UsageProblem(f"--data-loss {data_loss}: expected {' or '.join(DATA_LOSS)}")


def _schema(given: str | None) -> "dict[str, object] | None":
    """The schema in a file; None for raw values and for `infer`. Raises UsageProblem."""
    if given in (None, "infer"):
        return None
    if given == "registry":
        raise UsageProblem("--schema registry: schemas of a registry cannot be used yet; give a FILE, or infer")
    try:
        found = json_text.loads(Path(given).read_text())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageProblem(
            f'--schema {given}: expected JSON: {{"price":"double","item":"string"}}, or a schema as Spark writes it'
        )
    if found.get("type") == "struct" and isinstance(found.get("fields"), list):
        return found
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in found.items()]
    return {"type": "struct", "fields": fields}


def _check_usable(definition: LakeDefinition) -> None:
    """Raises UsageProblem if the schema, or the table that is there, cannot be used."""
    try:
        table = _open(definition)
        library("headrace.lake.decoders").make_decoder(definition, None if table is None else table.arrow_schema)
    except ValueError as wrong:  # SchemaChangedError, UnsupportedTableError
        raise UsageProblem(str(wrong)) from None


def _open(definition: LakeDefinition) -> "LoadTable | None":
    location = library("headrace.lake.delta.location").Location.of(definition.table)
    table: LoadTable | None = library("headrace.lake.delta.delta_table").LoadTable.open(location)
    return table


def _absolute(table: str) -> str:
    """The table as every process finds it. Raises UsageProblem."""
    try:
        location = library("headrace.lake.delta.location").Location.of(table)
    except ValueError as wrong:
        raise UsageProblem(f"--table: {wrong}") from None
    return str(location.uri if location.directory is None else location.directory)


def _partition(definition: LakeDefinition, table: "LoadTable | None", one: TopicPartition, end: int) -> dict[str, Json]:
    following = None if table is None else table.next_offset(definition.job, one)
    lost = 0 if table is None else table.lost(definition.job, one)
    lag = None if following is None else max(0, end - following)
    return {"partition": one.partition, "next": following, "end": end, "lag": lag, "lost": lost}


def _shown(value: Json) -> str:
    return "-" if value is None else str(value)


def _as_json(topic: str, definition: LakeDefinition) -> dict[str, Json]:
    found: dict[str, Json] = {"topic": topic, **asdict(definition)}
    return found
