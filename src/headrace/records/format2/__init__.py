"""Message format 2, of Kafka 0.11 and later: batches to records or columns, and back.

Pure: no IO. Begin with `header`, then `batch` (for few records) or `columns` (for many); `kernel` has the loops.
"""
