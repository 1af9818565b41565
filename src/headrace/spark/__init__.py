"""Spark reads the log, writes to it and loads it into tables; ordinary PySpark, no jar.

    options.py         what a user may write ─▶ ReadOptions; option_values.py reads one value
    offsets.py         ReadOptions ─▶ offset ranges ─▶ ranges of tasks            pure, asks through LogBounds
    cluster_access.py  LogBounds and settings over headrace.client
    schema.py          the columns as Spark's SQL has them
    source.py          the batch reader: ranges ─▶ Arrow batches
    stream.py          the streaming reader; admission.py says how much a micro-batch takes
    progress.py        how far a stream is, shown as the offsets of a consumer group
    file_source.py     the batch reader of segment files, without a broker
    sink.py            the writers; sink_options.py what they take, sink_marks.py why a repeated task doubles nothing
    load.py            the exactly-once load job; follow.py repeats it, load_command.py is its command line
    delta_table.py     its table: rows and progress in one commit
    crash.py           where tests kill it
    session.py         a quick, quiet local session; java.py finds or makes its Java

`pyspark_headrace`, beside this package, is what Spark finds as the format "headrace". Importing this package imports
nothing.
"""
