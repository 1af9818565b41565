"""A bound on everything that a peer or a file could make grow. Units last in each name.

Settings that an operator may move live in `config`; these are the walls behind them.
"""

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

DECOMPRESSED_BATCH_BYTES_MAX = 256 << 20
"""What one batch may unpack to, whatever its compressed size: the answer to decompression bombs."""

INLINE_DECOMPRESS_BYTES_MAX = 64 << 10
"""A compressed batch above this is checked on a thread of its own, so that the event loop goes on ..."""

INLINE_DECOMPRESSED_BYTES_MAX = 1 << 20
"""... and so is a smaller one that unpacks to more than this."""

DECOMPRESSING_AT_ONCE_MAX = 2
"""Such threads; times `DECOMPRESSED_BATCH_BYTES_MAX` is the memory that bombs can take."""

CONVERTED_BYTES_PER_FETCH_MAX = 8 << 20
"""How many bytes of messages one Fetch of an old client is answered with, where they have to be converted ..."""

CONVERTING_AT_ONCE_MAX = 2
"""... and how many such answers are made at the same time, for all connections together."""

REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX = 1024
"""Requests read from one connection and not answered yet; above it the connection is not read."""

REQUESTS_PER_TURN_MAX = 64
"""Requests of one connection taken up in one turn of the event loop, before other connections get theirs."""

PEER_ANSWER_BYTES_MAX = 256 << 20
"""The largest answer taken from another broker: a follower's fetch may hold one batch of any size."""

RESPONSE_BYTES_QUEUED_PER_CONNECTION_MAX = 64 << 20
"""Answers waiting for a slow reader; above it the connection's requests are not taken up."""

ELEMENTS_PER_MESSAGE_MAX = 1_000_000
"""In all arrays of one message together, whatever its bytes: each becomes an object of a hundred bytes."""

LOG_LINE_CHARS_MAX = 4096

METRICS_REQUEST_BYTES_MAX = 16 << 10
"""The head of a scraper's request ..."""

METRICS_REQUESTS_AT_ONCE_MAX = 4
"""... and how many are answered at once; others wait."""

FETCH_SESSION_PARTITIONS_MAX = 500_000
"""Partitions kept for all fetch sessions together; above it a client gets no session, and fetches all the same."""

TOPIC_NAME_CHARS_MAX = 249
PARTITIONS_PER_TOPIC_MAX = 100_000

COLD_READ_CHUNK_BYTES = 256 << 10
"""How much of a file is probed for the page cache and sent before other connections get their turn."""

PRODUCER_BATCHES_KEPT = 5
"""Batches per idempotent producer and partition that a retry is recognised among (as Apache Kafka keeps)."""
