"""Reading topics with Spark, batch and streaming: offset ranges to Arrow batches.

Begin with `source` and `stream`; `offsets` plans the offset ranges, `options` parses the options.
"""
