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
from headrace.config.lake_definition import DATA_LOSS, FORMATS, PARTITIONS, LakeDefinition
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
            metavar="FILE|infer|registry",
            help="Fields of values are columns: of JSON objects those of a schema file, or those found in the values "
            "(infer); of values with a schema of a registry those of the schema. Without it, values are bytes.",
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The registry of --schema registry. HEADRACE_REGISTRY_USER and _PASSWORD are the user of lake run.",
        ),
    ] = None,
    table_format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="delta|iceberg",
            help="iceberg: a Delta table, with Iceberg's metadata of the same files.",
        ),
    ] = "delta",
    catalog: Annotated[
        str | None,
        typer.Option(metavar="URI", help="The Iceberg catalog; without it, a SQLite file in the table's directory."),
    ] = None,
    partition_by: Annotated[
        str | None,
        typer.Option(
            metavar="month|day|hour|bucket:N|field:NAME",
            help="Divide the table: by the records' time, by a hash of their keys, or by a field of a schema FILE.",
        ),
    ] = None,
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
    if catalog is not None and (table_format != "iceberg" or "@" in catalog):
        raise UsageProblem(
            "--catalog: the address of the catalog of --format iceberg, without a password, which others could read; "
            "pyiceberg takes secrets from the environment of headrace lake run"
        )
    definition = LakeDefinition(
        table=_absolute(table),
        format=table_format,
        catalog=catalog,
        values={None: "raw", "registry": "registry"}.get(schema, "json"),
        schema=_schema(schema),
        headers=headers,
        job=job,
        data_loss=data_loss,
        registry=_registry(schema, registry),
        partition_by=_partition_by(partition_by),
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
        "iceberg_metadata": _iceberg_metadata(definition) if table is not None else None,
        "partitions": [dict(row) for row in rows],
    }
    if json:
        print_json({**_as_json(topic, definition), **facts})
        return
    shown = {
        **_as_json(topic, definition),
        **{key: facts[key] for key in ("table_version", "rows", "files", "iceberg_metadata")},
    }
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
    if table_format not in FORMATS:
        raise UsageProblem(f"--format {table_format}: expected {' or '.join(FORMATS)}")
    if data_loss not in DATA_LOSS:
        raise UsageProblem(f"--data-loss {data_loss}: expected {' or '.join(DATA_LOSS)}")


def _schema(given: str | None) -> "dict[str, object] | None":
    """The schema in a file; None for raw values, `infer` and `registry`. Raises UsageProblem."""
    if given in (None, "infer", "registry"):
        return None
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


def _partition_by(given: str | None) -> str | None:
    if given is not None and not PARTITIONS.fullmatch(given):
        raise UsageProblem(f"--partition-by {given}: expected month, day, hour, bucket:N (1 to 1024), or field:NAME")
    return given


def _registry(schema: str | None, registry: str | None) -> str | None:
    """The registry's address. Raises UsageProblem."""
    if (schema == "registry") != (registry is not None):
        raise UsageProblem("--schema registry and --registry URL go together: give both or neither")
    if registry is not None and "@" in registry:
        raise UsageProblem(
            "--registry: whoever may describe the topic would read the password; set HEADRACE_REGISTRY_USER and "
            "HEADRACE_REGISTRY_PASSWORD where headrace lake run starts"
        )
    return registry


def _check_usable(definition: LakeDefinition) -> None:
    """Raises UsageProblem if the schema, or the table that is there, cannot be used."""
    try:
        table = _open(definition)
        if definition.format == "iceberg":
            location = library("headrace.lake.delta.location").Location.of(definition.table)
            library("headrace.lake.iceberg").IcebergFace(location, definition.catalog)
        library("headrace.lake.decoders").make_decoder(definition, None if table is None else table.arrow_schema)
        if table is not None and table.partition_by != definition.partition_by:
            raise UsageProblem(
                f"the table {definition.table} has other partitions ({table.partition_by or 'none'}): give "
                "--partition-by as it was made, or another table"
            )
    except ValueError as wrong:  # SchemaChangedError, UnsupportedTableError
        raise UsageProblem(str(wrong)) from None


def _open(definition: LakeDefinition) -> "LoadTable | None":
    location = library("headrace.lake.delta.location").Location.of(definition.table)
    table: LoadTable | None = library("headrace.lake.delta.delta_table").LoadTable.open(location)
    return table


def _iceberg_metadata(definition: LakeDefinition) -> str | None:
    """Where Iceberg's metadata is, for readers without the catalog."""
    if definition.format != "iceberg":
        return None
    location = library("headrace.lake.delta.location").Location.of(definition.table)
    found: str | None = library("headrace.lake.iceberg").IcebergFace(location, definition.catalog).metadata
    return found


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
