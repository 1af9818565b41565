"""The exactly-once load job: topics to a Delta table, rows and offsets in one commit.

Begin with `load`. The table is `headrace.lake.delta`.
"""
