"""Lake tables: the records of topics as tables that any engine reads, written without Spark.

    core/     pure: what to write next, where a file ends, when to wait, how to go on after a restart
    delta/    a Delta table: its snapshot, its progress, and the one commit of rows and offsets
    service.py runs a table by its definition: members divides partitions, upkeep calls compaction, publisher iceberg
    whole_topic.py reads a table and its topic as one, by rows
    runner.py performs the actions of `core`: topic_log reads, decoding makes columns, round_files writes Parquet

May know `headrace.client`, pyarrow and deltalake. The load job of `headrace.spark` uses `delta/` too, so that a table
made by one can be continued by the other. Begin with `core/writer.py`, then `runner.py`. Importing this package imports
nothing.
"""
