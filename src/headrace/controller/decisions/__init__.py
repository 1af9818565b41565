"""The controller's decisions: elections, ISR changes, assignments, reassignments, topics, fencing.

Pure: no clock, no IO, no event loop. Begin with `cluster_state`, which the decisions read, then `elections`.
"""
