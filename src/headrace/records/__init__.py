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

That is message format 2 (Kafka 0.11 and later). Before it:

    any_format.py       what a log sees of a batch of any format; `scan_any` reads a mixture
    message.py          one message of format 0 or 1;  message_set.py: sets of them, wrappers opened
    message_columns.py  sets to columns and back, over message_kernel.py, the loops
    message_codecs.py   their codecs, with the lz4 of Kafka 0.8
    produced_sets.py    what a broker asks of a produced set, and where it places it
    conversion.py       batches of each format as those of another
    format_07.py        messages of Kafka 0.7
"""
