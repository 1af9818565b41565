"""Validation and format conversion of produced batches, and the fast path for plain requests.

May know partitions and record formats. Begin with `plain_produce`, the fast path, which validates with
`records.format2` alone; `formats` and `checks` validate what the handler, `handlers.produce`, appends.
"""
