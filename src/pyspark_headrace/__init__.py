"""The package through which Spark finds `spark.read.format("headrace")` without registration.

Spark imports every top-level package named `pyspark_*` and takes its `DefaultSource` under the name it gives itself.
It does so in a process of its own for every new session, so this package may know PySpark's base class only, and
imports the source when it is used. Begin with `headrace.spark.source`.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Kafka topics as DataFrames; the options are those of Spark's Kafka connector
    (`headrace.spark.source.options`)."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> "str | StructType":
        from headrace.spark.source.options import parse_columns
        from headrace.spark.source.schema import schema_ddl

        if self.options.get("lake"):
            from headrace.spark.source.lake_stream import lake_schema
            from headrace.spark.source.options import parse_options

            return lake_schema(parse_options(self.options, streaming=True))  # for a batch, too: it needs no boundary
        return schema_ddl(parse_columns(self.options))

    def reader(self, schema: "StructType") -> DataSourceReader:
        from headrace.spark.source.options import parse_options

        options = parse_options(self.options)
        if options.path is not None:
            from headrace.spark.source.file_source import FileReader

            return FileReader(options)
        if options.lake is not None:
            from headrace.spark.source.lake_stream import LakeBatchReader, find_place

            return LakeBatchReader(options, find_place(options), schema.json())
        from headrace.spark.source.source import BatchReader

        return BatchReader(options)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        from headrace.spark.source.options import parse_options
        from headrace.spark.source.stream import StreamReader

        options = parse_options(self.options, streaming=True)
        if options.lake is not None:
            from headrace.spark.source.lake_stream import LakeStreamReader, find_place

            return LakeStreamReader(options, find_place(options), schema.json())
        return StreamReader(options)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from headrace.spark.sink.sink import BatchWriter
        from headrace.spark.sink.sink_options import parse_sink_options

        return BatchWriter(parse_sink_options(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:
        from headrace.spark.sink.sink import StreamWriter
        from headrace.spark.sink.sink_options import parse_sink_options

        # Complete mode asks to overwrite; as in the connector, its rows are appended as well.
        return StreamWriter(parse_sink_options(self.options, schema, overwrite=False))
