"""The positions of Kafka 0.7 for the records of a log: an index from offsets to byte positions, and reads by position.

May know record formats, segments and files; knows no broker. Begin with `position_index`; `position_reads` reads the
log.
"""
