"""The log cleaner: chooses logs to compact, compacts them in a process of its own, and swaps the result in.

May know segments and checkpoints. Begin with `cleaner` (which log, and when), then `compaction` (one log), then
`compaction_filter` (one batch).
"""
