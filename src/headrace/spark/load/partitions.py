"""The column that divides a table into partitions, as Spark makes it: the same values as `headrace.lake.partitioning`.

Spark's tasks write a folder for each value, named by a hash of it, because a name with characters to encode would be
decoded by readers of Delta tables. The column itself stays in the files, and the partition's value is read from there.
"""

from typing import TYPE_CHECKING, Final

from headrace.lake.partitioning import Partitioning

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FOLDER: Final = "headrace_partition"
_HOUR_MICROS: Final = 3_600_000_000
_DAY_MICROS: Final = 24 * _HOUR_MICROS
_FIRST_MICROS: Final = -62_135_510_400_000_000
_LAST_MICROS: Final = 253_402_128_000_000_000


def with_partitions(rows: "DataFrame", partitioning: Partitioning) -> "DataFrame":
    """The rows with the column of the partitions. Raises ValueError if they have none."""
    if partitioning.kind == "field":
        if partitioning.column not in rows.columns:
            raise ValueError(f"partitions by field:{partitioning.column} need this column: name it in --value-json")
        return rows
    return rows.withColumn(partitioning.column, _value(partitioning))


def folder(column: str) -> "Column":
    """The name of the folder of a row."""
    from pyspark.sql import functions as F

    return F.coalesce(F.md5(F.col(column).cast("string")), F.lit("none"))


def _value(partitioning: Partitioning) -> "Column":
    from pyspark.sql import functions as F

    if partitioning.kind == "bucket":
        return (F.crc32(F.col("key")) % partitioning.buckets).cast("int")
    micros = F.unix_micros("timestamp")
    day = F.date_add(F.lit("1970-01-01").cast("date"), F.floor(micros / _DAY_MICROS).cast("int")).cast("string")
    hour = F.floor(F.pmod(micros, F.lit(_DAY_MICROS)) / _HOUR_MICROS).cast("string")
    shown = {
        "month": F.substring(day, 1, 7),
        "day": day,
        "hour": F.concat(day, F.lit("T"), F.lpad(hour, 2, "0")),
    }[partitioning.kind]
    return F.when(micros.between(_FIRST_MICROS, _LAST_MICROS), shown)
