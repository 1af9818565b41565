"""Values as JSON objects in typed columns. Nothing that a value says about these columns is lost.

    value                                     columns       corrupt_value   tombstone
    one JSON object that fits                 its fields    null            false
    null                                      null          null            true
    an object, and a field does not fit       the others    the value       false
    an object with a column in other case     the others    the value       false
    all else                                  null          the value       false

"All else" is what is not UTF-8, not JSON, empty, no object, cut off, or more than one document. `corrupt_value` is
binary, because Spark stores strings as they are, and other readers of Parquet refuse a string that is not UTF-8. Fields
without a column are left out: the schema chooses the fields.

Spark's `from_json` ends at the end of the first document, so what follows would be lost. Two wraps make that an error:
VALUE is parsed as {"v":VALUE}, and [VALUE] must be an array of one element. A text that closes the first wrap early
does not fit into the second one.
"""

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from headrace.spark.option_values import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

ORIGIN: Final = ("topic", "partition", "offset", "timestamp", "key")
HEADERS: Final = "headers"
CORRUPT_COLUMN: Final = "corrupt_value"
TOMBSTONE_COLUMN: Final = "tombstone"
_WRAP: Final = "v"
_REFUSED: Final = "refused"


def with_typed_columns(rows: "DataFrame", value_json: str) -> "DataFrame":
    """The origin of each row, and a column for each field of the schema. Raises OptionError for an unusable schema."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructType

    fields = parse_schema(value_json)
    origin = [*ORIGIN, *(name for name in (HEADERS,) if name in rows.columns)]
    wrapped = StructType().add(_WRAP, fields).add(_REFUSED, StringType())
    in_object = F.concat(F.lit(f'{{"{_WRAP}":'), F.col("text"), F.lit("}"))
    text = F.expr("try_validate_utf8(CAST(value AS STRING))")  # null where it is not UTF-8
    parsed = F.from_json(in_object, wrapped, {"columnNameOfCorruptRecord": _REFUSED})
    found = rows.withColumn("text", text).withColumns({"parsed": parsed, "elements": _elements(F.col("text"))})
    is_whole = F.col("elements") == 1
    values = [F.col("parsed")[_WRAP][name] for name in fields.names]
    fits = is_whole & F.col(f"parsed.{_WRAP}").isNotNull() & F.col(f"parsed.{_REFUSED}").isNull()
    fits = fits & ~(_may_miss_a_key(fields, values) & F.col("text").rlike(_other_case(fields)))
    return found.select(
        *origin,
        *(F.when(is_whole, value).alias(name) for name, value in zip(fields.names, values, strict=True)),
        F.when(F.col("value").isNotNull() & ~F.coalesce(fits, F.lit(False)), F.col("value")).alias(CORRUPT_COLUMN),
        F.col("value").isNull().alias(TOMBSTONE_COLUMN),
    )


def parse_schema(value_json: str) -> "StructType":
    """A Spark schema as in `origin STRING, delay DOUBLE`. Raises OptionError."""
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    try:
        fields = StructType.fromDDL(value_json)
    except ParseException:
        fields = None
    if not isinstance(fields, StructType) or not fields.names:  # "INT" alone would be a type too
        raise OptionError("value-json", value_json, "write columns and their types: 'origin STRING, delay DOUBLE'")
    taken = {*ORIGIN, HEADERS, CORRUPT_COLUMN, TOMBSTONE_COLUMN}
    clashing = [name for name in fields.names if name.lower() in taken]
    if clashing:
        raise OptionError("value-json", value_json, f"{', '.join(clashing)} are names of the table's other columns")
    return fields


def _elements(text: "Column") -> "Column":
    """The number of JSON documents, separated by commas; null where there is anything else."""
    from pyspark.sql import functions as F

    return F.size(F.from_json(F.concat(F.lit("["), text, F.lit("]")), f"ARRAY<STRUCT<{_REFUSED}: BOOLEAN>>"))


def _may_miss_a_key(fields: "StructType", values: "Sequence[Column]") -> "Column":
    """Whether a column may be null because its key has another case. To search the text for keys takes long."""
    from pyspark.sql import functions as F

    if list(_names(fields)) != fields.names:
        return F.lit(True)
    return reduce(or_, (value.isNull() for value in values))


def _other_case(fields: "StructType") -> str:
    """A regular expression for a key that is a column's name except for its case."""
    names = "|".join(dict.fromkeys(map(_quoted, _names(fields))))
    return rf'"(?!(?:{names})")(?iu:{names})"\s*:'


def _quoted(name: str) -> str:
    return re.escape(name) if name.isascii() else rf"\Q{name}\E"


def _names(kind: "DataType") -> Iterator[str]:
    """The names of all fields, at any depth."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case StructType():
            for one in kind.fields:
                yield one.name
                yield from _names(one.dataType)
        case ArrayType():
            yield from _names(kind.elementType)
        case MapType():
            yield from _names(kind.valueType)
