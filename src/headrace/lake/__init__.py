"""Lake tables: the records of topics as tables that any engine reads, written without Spark.

    core/     pure: what to write next, where a file ends, when to wait, how to go on after a restart
    delta/    a Delta table: its snapshot, its progress, and the one commit of rows and offsets

May know `headrace.client`, pyarrow and deltalake. The load job of `headrace.spark` uses `delta/` too, so that a table
made by one can be continued by the other. Begin with `delta/delta_table.py`. Importing this package imports nothing.
"""
