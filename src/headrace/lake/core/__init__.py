"""What a writer of lake tables decides, without IO: offsets and time in, the next action out.

Pure: no IO, no clock. Begin with `writer`, the state machine; it asks `plan` what to write next. `roll` says where a
row group and a file end.
"""
