"""The exactly-once load job: topics to a Delta table, rows and offsets in one commit.

Begin with `load`, then `delta_table`.
"""
