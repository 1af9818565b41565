"""The fields of a row of `PlainSessionFetch._found`: what a fetch found in one partition.

    index | high watermark | last stable offset | log start offset
    | position in the file, and size of the records | size of the records up to it
    | place of their file in `_sources` | descriptor of that file, if it may be read past the file; else -1

A module of its own that is not compiled: compiled modules import its names into C integers.
"""

(
    FOUND_INDEX, FOUND_HIGH, FOUND_STABLE, FOUND_START, FOUND_POSITION, FOUND_SIZE, FOUND_SO_FAR, FOUND_SOURCE,
    FOUND_FD, FOUND_FIELDS,
) = range(10)  # fmt: skip
"""The places of the fields, and their number."""
