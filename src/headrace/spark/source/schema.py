"""The columns of a read: Spark's Kafka schema, as SQL text.

    key            binary                                  null when the record has none
    value          binary                                  null when the record has none
    topic          string
    partition      int
    offset         bigint
    timestamp      timestamp                               microseconds; Kafka's milliseconds, times 1000
    timestampType  int                                     0 create time, 1 log append time
    headers        array<struct<key:string,value:binary>>  only with includeHeaders; null when there are none

Every column is nullable, as in the connector. Spark compares the first batch of a Python source with its own Arrow
schema, so `headrace.client.consumer.arrow` must build the schema that Spark builds from this text; a test compares
them. Source: Spark's KafkaRecordToRowConverter.
"""

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

_SQL_TYPES: Final = MappingProxyType(
    {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
        "headers": "array<struct<key: string, value: binary>>",
    }
)


def schema_ddl(columns: Iterable[str]) -> str:
    """The schema in Spark's SQL syntax."""
    return ", ".join(f"{column} {_SQL_TYPES[column]}" for column in columns)
