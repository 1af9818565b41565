"""Data directories (`log.dirs`): locks, identity, checkpoints, failures, and moves of logs between them.

May know files and logs; knows no partition's role. Begin with `directories`, then `data_directory`.
"""
