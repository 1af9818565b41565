"""Record batches: bytes to records and back, without a socket or a file in sight.

    header.py         the 61 bytes that every batch starts with, and what a broker changes in them
    batch.py          the front door: batches as lists of Python records, for whoever handles few of them
    columns.py        batches to columns in Arrow's layout, for whoever handles many
    build.py          and columns to batches
    binary.py         the columns themselves
    validation.py     what a broker asks of a batch before it appends it
    compression.py    the four codecs, with a bound on what comes out
    recompression.py  a batch with another codec
    control.py        the markers that end a transaction
    kernel.py         the loops over single records; compiled where a C compiler was found
    varint.py         zigzag numbers, as the format defines them

Only message format 2 (Kafka 0.11 and later) is read and written here.
"""
