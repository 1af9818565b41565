"""Records as tables for data frames: a bounded range of a topic, or what a consumer polled. Imports pyarrow.

reading   `table`: reads a range of a topic          record_table   what it returns: Arrow, polars, pandas, DuckDB

May know the consumer, serializers and `columns`. Begin with `reading`.
"""
