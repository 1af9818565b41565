"""Reading topics with Spark, batch and streaming: offset ranges to Arrow batches.

May know the client, `offline` for files, and PySpark; no sink. Begin with `source` and `stream`; `offsets` plans the
offset ranges, `options` parses the options.
"""
