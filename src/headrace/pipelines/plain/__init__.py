"""What each pipeline must find, in plain Python over the same events: lists, dicts and loops, and no Spark.

Pure. Tests compare a pipeline's topics with these, after kills. Begin with `operations`.
"""
