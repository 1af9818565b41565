"""Record batches of every message format: decoding, encoding, validation, conversion. Pure: no sockets, no files.

    any_format.py   headers of batches of any format; `scan_any` reads a mixture of formats
    binary.py       columns of bytes in Arrow's layout
    codecs/         compression, with a bound on the decompressed size, and CRC-32C
    format2/        message format 2 (Kafka 0.11 and later)
        header.py         the 61 bytes at the start of every batch, and the fields that a broker sets
        batch.py          batches as lists of Python records, for few records
        columns.py        batches to columns, for many records;  build.py: columns to batches
        validation.py     the checks of a broker before it appends a batch
        recompression.py  a batch with another codec
        control.py        transaction markers
        kernel.py         the loops over single records; compiled if a C compiler was found
    legacy/         the formats before
        message.py          one message of format 0 or 1;  message_set.py: sets of them, wrappers opened
        message_columns.py  sets to columns and back, with the loops in message_kernel.py
        message_codecs.py   their codecs, with the lz4 of Kafka 0.8
        produced_sets.py    the checks of a broker on a produced set, and its offsets
        conversion.py       conversion between all formats
        format_07.py        messages of Kafka 0.7

Begin with `format2.header`, then `any_format`.
"""
