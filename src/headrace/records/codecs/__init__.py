"""The compression codecs, with a bound on the decompressed size, and the checksum CRC-32C.

Pure: no IO; knows no batches. Begin with `compression`.
"""
