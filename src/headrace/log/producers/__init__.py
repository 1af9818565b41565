"""The state of idempotent and transactional producers of a partition, in memory and as snapshot files.

May know record formats and files; knows no log. Begin with `producer_state`.
"""
