"""The decoder of a definition, for the columns that its table has now."""

import json
from typing import Any

import pyarrow as pa
from deltalake import Schema

from headrace.config.lake_definition import LakeDefinition
from headrace.lake.decoding import HEADERS, Decoder, RawDecoder
from headrace.lake.delta.delta_table import SchemaChangedError
from headrace.lake.delta.fit import Fit, fit
from headrace.lake.json_decoding import JsonTableDecoder
from headrace.lake.json_fields import CORRUPT_COLUMN, PARTITION_COLUMNS, field_of, is_own
from headrace.lake.partitioning import PartitionedDecoder, Partitioning, partitioned
from headrace.lake.registry_decoding import RegistryTableDecoder, registry_of


def make_decoder(definition: LakeDefinition, table: pa.Schema | None) -> Decoder:
    """The decoder for a table with these columns; None for a new table. Raises SchemaChangedError."""
    decoder = _make_decoder(definition, table)
    if definition.partition_by is None:
        return decoder
    partitioning = Partitioning.of(definition.partition_by)
    try:
        partitioning.check(decoder.schema)
    except ValueError as wrong:
        raise SchemaChangedError(str(wrong)) from None
    return PartitionedDecoder(decoder, partitioning)


def _make_decoder(definition: LakeDefinition, table: pa.Schema | None) -> Decoder:
    headers = definition.headers if table is None else HEADERS in table.names
    if definition.values == "raw":
        return _raw(definition, table, headers)
    if table is not None and CORRUPT_COLUMN not in table.names:
        raise SchemaChangedError(
            f"the table {definition.table} has no column {CORRUPT_COLUMN}, which keeps values that do not fit: it "
            "is of raw records, or not of this program; write values with a schema to a new table"
        )
    fields = wanted_fields(definition)
    if table is not None:
        fields = _with_known(definition, _fields_of(table), fields)
    if definition.registry is not None:
        return RegistryTableDecoder(registry_of(definition.registry), fields, headers=headers)
    try:
        return JsonTableDecoder(fields, headers=headers, grows=definition.schema is None)
    except TypeError as wrong:
        raise SchemaChangedError(f"the table {definition.table} cannot be written: {wrong}") from None


def reading_decoder(table: pa.Schema, registry: str | None = None, partition_by: str | None = None) -> Decoder:
    """The decoder that gives records the columns of a table, and leaves out what has none. Raises TypeError."""
    return partitioned(_reading(table, registry), partition_by)


def _reading(table: pa.Schema, registry: str | None) -> Decoder:
    if CORRUPT_COLUMN not in table.names:
        return RawDecoder(headers=HEADERS in table.names)
    known = _fields_of(table)
    if registry is not None:
        return RegistryTableDecoder(registry_of(registry), known, headers=HEADERS in table.names, grows=False)
    return JsonTableDecoder(known, headers=HEADERS in table.names)


def wanted_fields(definition: LakeDefinition) -> pa.StructType:
    """The fields of the definition's schema. Raises SchemaChangedError for one that cannot be used."""
    if definition.schema is None:
        return pa.struct([])
    try:
        return pa.struct(list(pa.schema(Schema.from_json(json.dumps(definition.schema)).to_arrow())))
    except Exception as wrong:  # the library raises what its JSON reader does
        raise SchemaChangedError(f"the schema of the table {definition.table} is not one of Spark's: {wrong}") from None


def _fields_of(table: pa.Schema) -> pa.StructType:
    """The fields of values that a table has columns of."""
    return pa.struct([field.with_name(field_of(field.name)) for field in table if not is_own(field.name)])


def _with_known(definition: LakeDefinition, known: pa.StructType, wanted: pa.StructType) -> pa.StructType:
    """The fields that the table has, and new ones of the schema; a field that grows is that of the schema."""
    fit_of = {field.name: field for field in known}
    for field in wanted:
        if field.name in fit_of and fit(_spark_type(fit_of[field.name]), _spark_type(field)) is Fit.CLASHES:
            raise SchemaChangedError(
                f"the table {definition.table} has another type than the schema for {field.name}: "
                f"{fit_of[field.name].type}, not {field.type}; write to a new table"
            )
    wanted_names = {field.name for field in wanted}
    return pa.struct([*(field for field in known if field.name not in wanted_names), *wanted])


def _spark_type(field: pa.Field) -> Any:
    return json.loads(Schema.from_arrow(pa.schema([field])).to_json())


def _raw(definition: LakeDefinition, table: pa.Schema | None, headers: bool) -> Decoder:
    raw = RawDecoder(headers=headers)
    known = set() if table is None else {*table.names} - {*PARTITION_COLUMNS}
    if table is not None and known != {*raw.schema.names}:
        differing = ", ".join(sorted(known ^ {*raw.schema.names}))
        raise SchemaChangedError(
            f"the table {definition.table} has not the columns of raw records ({differing} differ): define it with the "
            "schema that it has, or choose another table"
        )
    return raw
