"""One segment of a log: its `.log` file, its sparse indexes, and the look-ups in them.

May know files and record formats; knows no other segment. Begin with `segment`, then `offset_index`.
"""
