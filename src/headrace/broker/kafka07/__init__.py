"""Serves clients of Kafka 0.7, on listeners of protocol KAFKA07.

Its requests become those of today and pass the same admission, quotas and produce; its offsets are byte positions.
May know handlers, partitions and the request context. Begin with `dispatch`; `positions` keeps the position indexes,
from which `fetch` and `offsets` answer.
"""
