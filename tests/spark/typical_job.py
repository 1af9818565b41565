"""`typical_job.py DIRECTORY`: what the drivers of the tests do, once, so that all classes for it are loaded."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from headrace.spark.session import session


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def main(directory: Path) -> None:
    """Writes, reads, counts and streams a few rows, and ends when the JVM has ended."""
    spark = session("typical job", master="local[2]", short_lived=True)
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    rows = spark.createDataFrame([(n, f'{{"item": "tea", "pots": {n}}}') for n in range(10)], "n LONG, value STRING")
    parsed = rows.selectExpr("n", "from_json(value, 'item STRING, pots INT') AS parsed").select("n", "parsed.*")
    parsed.mapInArrow(same, parsed.schema).write.partitionBy("item").parquet(str(directory / "rows"))
    back = spark.read.parquet(str(directory / "rows"))
    back.groupBy("item").agg({"pots": "max"}).orderBy("item").collect()
    back.cache().count()
    stream = spark.readStream.schema(back.schema).parquet(str(directory / "rows"))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).start(str(directory / "copy")).awaitTermination()
    spark.stop()
    process.stdin.close()
    process.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
