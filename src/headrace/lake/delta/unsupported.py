"""Tables that a load refuses, because rows that it appended there would be wrong.

A load appends Parquet files with the same columns, and does nothing else that Delta's protocol may ask of a writer: no
values of partitions, no checks of constraints, no generated values, no ids of rows. A table that needs this is refused
by the name of what it needs. Partitions that we made are known (`lake.partitioning`). Deletion vectors, change data
feed, clustering and other checkpoints ask nothing of a writer that only appends.

Source: Delta's protocol, "Requirements for Writers" and the table features.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deltalake import DeltaTable

_HARMLESS: Final = frozenset(
    {
        *("appendOnly", "changeDataFeed", "deletionVectors", "domainMetadata", "clustering", "timestampNtz"),
        *("v2Checkpoint", "vacuumProtocolCheck", "allowColumnDefaults", "variantType"),
        # In use only if the properties or the fields below say so.
        *("invariants", "checkConstraints", "generatedColumns", "identityColumns", "columnMapping"),
    }
)
PARTITION_BY: Final = "headrace.partitionBy"
"""The table's property that says how our own partitions are made."""
_FIELD_KEYS: Final = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "generated values",
    "delta.identity.start": "identity values",
    "delta.columnMapping.physicalName": "another name in the files (column mapping)",
}


class UnsupportedTableError(ValueError):
    """The target is no table that a load can append to; the message says why, and what to do."""


def check_supported(table: DeltaTable, directory: object) -> None:
    """Raises UnsupportedTableError with everything that prevents loads into the table."""
    problems = list(_problems(table))
    if problems:
        raise UnsupportedTableError(
            f"the table {directory} cannot be loaded into: {'; '.join(problems)}. Load into a new table, and copy from "
            "there with a program that knows this one"
        )


def _problems(table: DeltaTable) -> Iterator[str]:
    metadata = table.metadata()
    if metadata.partition_columns and PARTITION_BY not in metadata.configuration:
        yield f"it is partitioned by {', '.join(metadata.partition_columns)}"
    for key in sorted(metadata.configuration):
        if key.startswith("delta.constraints."):
            yield f"it has the CHECK constraint {key.removeprefix('delta.constraints.')}"
    for key in ("delta.enableRowTracking", "delta.enableInCommitTimestamps"):
        if metadata.configuration.get(key, "false").lower() == "true":
            yield f"its property {key} is set"
    mode = metadata.configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        yield f"its property delta.columnMapping.mode is {mode}"
    for field in table.schema().fields:
        yield from _field_problems(field.name, field.metadata)
    unknown = sorted(set(table.protocol().writer_features or ()) - _HARMLESS)
    if unknown:
        yield f"it has the table features {', '.join(unknown)}"


def _field_problems(name: str, metadata: Mapping[str, Any]) -> Iterator[str]:
    for key, what in _FIELD_KEYS.items():
        if key in metadata:
            yield f"its column {name} has {what}"
