"""Validation and format conversion of produced batches, and the fast path for plain requests.

May know partitions and record formats. Begin with the handler, `handlers.produce`: `formats` and `checks` validate
what it appends. `plain_produce` is the fast path, which validates with `records.format2` alone.
"""
