"""What consumer and share groups have in common: their members' subscriptions, epochs and target assignments.

Pure. Begin with `modern_group`.
"""
