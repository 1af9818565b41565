"""Security of a running broker: who a client is, what it may do, and the record of it.

May know connections, settings and the metadata store. The decisions themselves are in `headrace.security`, which is
pure. Begin with `build`, which makes what the settings ask for, then `gate` (who) and `authorizer` (what).
"""
