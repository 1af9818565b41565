"""Runs coordinators: loads their logs, executes their actions, and fires their timers.

May know partitions, metadata and the event loop. The rules of groups are in `headrace.coordinators`, which does no IO.
Begin with `coordinator_runtime`, then `group_service`.
"""
