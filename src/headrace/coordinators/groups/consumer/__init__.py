"""Consumer groups (KIP-848): the broker assigns partitions, and members reconcile what they own one by one.

Pure. Begin with `requests`, whose methods lead to `heartbeat`, `leaving` and `reconciliation`.
"""
