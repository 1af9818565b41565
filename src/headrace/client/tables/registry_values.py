"""Decoders of values with a schema of a registry into columns, for `table` and `RecordTable`."""

from __future__ import annotations

from headrace.client.serializers.errors import RegistryError, missing_library
from headrace.client.serializers.registry.client import SchemaRegistry
from headrace.client.serializers.registry.schemas import AVRO
from headrace.columns.arrow_types import Schema
from headrace.columns.avro_columns import FramedAvroDecoder


def avro_values(registry: SchemaRegistry, columns: Schema | None = None) -> FramedAvroDecoder:
    """A decoder of Avro with the schema's id in a prefix; `columns` are those wanted, else those of all schemas.

    Values of a schema that the registry does not know are rescued. Raises InvalidConfig without fastavro; decoding
    raises RegistryUnavailable, and TypeError for a schema that columns cannot hold, as one that refers to others.
    """
    try:
        import fastavro  # noqa: F401
    except ModuleNotFoundError:
        raise missing_library("fastavro", "avro", "Avro") from None

    def schema_of(number: int) -> str:
        try:
            found = registry.schema(number)
        except RegistryError as error:
            raise LookupError(str(error)) from error
        if found.kind != AVRO:
            raise LookupError(f"schema {number} is {found.kind}")
        return found.text

    return FramedAvroDecoder(schema_of, columns)
