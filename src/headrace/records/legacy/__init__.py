"""The message formats before Kafka 0.11: formats 0 and 1, that of Kafka 0.7, and conversion between all formats.

Pure: no IO. Begin with `message`, then `message_set`; `conversion` converts each format to the others.
"""
