"""Delta tables that take part in exactly-once loads: rows and offsets in one commit.

May know pyarrow and deltalake; no topic. Begin with `delta_table`; `restored` finds the progress after a RESTORE,
`unsupported` refuses what would be wrong.
"""
