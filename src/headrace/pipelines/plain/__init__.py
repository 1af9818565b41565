"""What each pipeline must find, in plain Python over the same events: lists, dicts and loops, and no Spark.

Tests and `make pipelines` compare a pipeline's topics with these, after kills.
"""
