"""Values of records as typed Arrow columns, without a Python object per record. Imports pyarrow; does no IO.

    json_columns   JSON objects ─▶ columns     json_rows     one value alone, where a block of values fails
    json_schema    the schema of some values   decoded       what every decoder returns
    arrow_types    names of pyarrow's classes, for annotations

A decoder returns one row for each value, in their order, so the result stands beside the offsets, partitions and
timestamps of the records. A value that does not fit is kept as it is in another column, and counted. Begin with
`decoded`, then `json_columns`.
"""
