"""The message compiler: turns schemas into straight-line Python for one message and version.

Pure: no IO. Begin with `schema`, then `compiler`; `encoding` and `decoding` generate the code, `wire` has its
primitives.
"""
