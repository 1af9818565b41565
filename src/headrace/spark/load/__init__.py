"""The exactly-once load job: topics to a Delta table, rows and offsets in one commit.

May know the client, PySpark and `headrace.lake.delta`, which is its table. Begin with `load`.
"""
