"""Fixed limits on everything that a peer or a file could make grow. Each name ends with its unit.

An operator cannot change them. Limits that an operator may set are settings, in `config`.
"""

INT16_MAX = (1 << 15) - 1
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

DECOMPRESSED_BATCH_BYTES_MAX = 256 << 20
"""The largest decompressed size of one batch, whatever its compressed size. It bounds decompression bombs."""

INLINE_DECOMPRESS_BYTES_MAX = 64 << 10
"""The largest compressed batch that the event loop checks. A larger one is checked on a thread."""

INLINE_DECOMPRESSED_BYTES_MAX = 1 << 20
"""The largest decompressed size that the event loop checks. A batch that exceeds it is checked again on a thread."""

DECOMPRESSING_AT_ONCE_MAX = 2
"""Threads that decompress at the same time. Their number times `DECOMPRESSED_BATCH_BYTES_MAX` is the memory that
decompression bombs can take."""

INLINE_TIME_SEARCHES_MAX = 8
"""Searches for a timestamp that the event loop makes for one ListOffsets, in small batches. A thread makes the
others."""

TIME_SEARCHES_AT_ONCE_MAX = 2
"""Threads that search for timestamps at the same time, for all connections together. Each request uses one."""

CONVERTED_BYTES_PER_FETCH_MAX = 8 << 20
"""Bytes of converted messages in one response to the Fetch of an old client."""

CONVERTING_AT_ONCE_MAX = 2
"""Fetch responses that are converted at the same time, for all connections together."""

REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX = 1024
"""Requests of one connection that are read and not answered. Above it the broker stops reading the connection."""

ADMISSIONS_PER_CONNECTION_MAX = 1000
"""Decisions of the admission that one connection keeps; above it they are made anew."""

REQUESTS_PER_TURN_MAX = 64
"""Requests of one connection handled in one turn of the event loop, before other connections get their turn."""

PEER_ANSWER_BYTES_MAX = 256 << 20
"""The largest response accepted from another broker: a follower's fetch may hold one batch of any size."""

RESPONSE_BYTES_QUEUED_PER_CONNECTION_MAX = 64 << 20
"""Responses that wait for a slow reader. Above it the broker handles no further request of the connection."""

ELEMENTS_PER_MESSAGE_MAX = 1_000_000
"""Elements in all arrays of one response, or of one request between brokers, whatever its size in bytes: each element
becomes an object of a hundred bytes."""

ELEMENTS_PER_REQUEST_MAX = 50_000
"""Elements in all arrays of one request of a client: each takes one to three microseconds to decode, and more to
handle. Apache Kafka has no such limit; its controllers accept 10,000 topics or partitions in a request."""

ELEMENTS_PER_ADMIN_REQUEST_MAX = 20_000
"""The same for requests that create, delete, move, alter or describe topics, settings and offsets. Each of their
elements costs ten times as much, and no client sends as many: Apache Kafka's limit of 10,000 topics leaves two elements
for each."""

ELEMENTS_PER_SLICE = 500
"""Elements that are decoded, handled or encoded in one turn of the event loop. At a few microseconds each they hold it
for a few milliseconds."""

INLINE_REQUEST_BYTES_MAX = 16 << 10
"""The largest request, other than a Produce, that is decoded in one turn of the event loop. A larger one is decoded in
slices. An element takes at least three bytes, and a dozen with any name in it."""

INLINE_RESPONSE_ELEMENTS_MAX = 1_000
"""Elements of the largest response that is encoded in one turn of the event loop. A larger one is encoded in
slices."""

MEMBERS_PER_REQUEST_MAX = 10_000
"""Members in one LeaveGroup or in the assignments of one SyncGroup, and ids in one DescribeTransactions. No group has
as many."""

NAMES_PER_REQUEST_MAX = 1_000
"""Protocols in one JoinGroup, or filters in one ListGroups. Clients send less than ten."""

TAGGED_FIELDS_MAX = 127
"""Tagged fields, known and unknown, in one structure of a message. Kafka's messages have up to five."""

LOG_LINE_CHARS_MAX = 4096
"""Characters of one value in a log line. Longer values are cut."""

METRICS_REQUEST_BYTES_MAX = 16 << 10
"""The head of one request for metrics."""

METRICS_REQUESTS_AT_ONCE_MAX = 4
"""Requests for metrics answered at the same time. Others wait."""

FETCH_SESSION_PARTITIONS_MAX = 500_000
"""Partitions in all fetch sessions together. Above it a client gets no session, and sends full fetches."""

FETCH_SESSION_PARTITIONS_OF_CONSUMER_MAX = 10_000
"""Partitions in the fetch session of one consumer: each of its requests, however small, checks all of them."""

PARTITIONS_PER_PRODUCE_MAX = 2_500
"""Partitions in one Produce, which is handled in one turn of the event loop. A producer's request of one megabyte has
hundreds."""

ELEMENTS_PER_PRODUCE_MAX = 2 * PARTITIONS_PER_PRODUCE_MAX
"""Elements in all arrays of one Produce, which is decoded in one turn of the event loop: its partitions and their
topics."""

RECORD_ERRORS_PER_PRODUCE_MAX = 1_000
"""Rejected records that the answer to one Produce names, for all its partitions together. A client fails the records
that are not named as well, since their batch was rejected."""

ADDED_TRANSACTIONS_PER_REQUEST_MAX = 500
"""Transactions in one AddPartitionsToTxn to another broker."""

COORDINATOR_ACTIONS_PER_TURN_MAX = 200
"""Actions of one coordinator (responses, records to append) that are executed in one turn of the event loop. An append
takes up to a tenth of a millisecond."""

COORDINATOR_LOAD_CHUNK_BYTES = 32 << 10
"""Bytes of a coordinator's partition that are replayed in one turn of the event loop: about two hundred records, each
of which takes up to a tenth of a millisecond."""

MARKERS_SENT_PER_TURN_MAX = 200
"""Markers of this broker's transaction coordinator that are written, or added to a request, in one turn of the event
loop."""

MARKERS_PER_TURN_MAX = 500
"""Transaction markers appended in one turn of the event loop."""

TOPICS_CREATED_PER_METADATA_MAX = 500
"""Topics that one Metadata request may create. The client asks again for the others, and gets the next ones."""

INLINE_CHECKS_NS_MAX = 5_000_000
"""How long the event loop checks the small compressed batches of one Produce. A thread checks the rest."""

TOPIC_NAME_CHARS_MAX = 249
PARTITIONS_PER_TOPIC_MAX = 100_000

COLD_READ_CHUNK_BYTES = 256 << 10
"""Bytes of a file that are probed for the page cache and sent at once."""

PRODUCER_BATCHES_KEPT = 5
"""Batches kept per idempotent producer and partition to recognise a retry, as in Apache Kafka."""

REFUSED_PRODUCERS_MAX = 10_000
"""Unknown idempotent producers of a broker whose first batch was refused. The broker waits for the retry of that batch,
and refuses later sequences until it comes. Above the limit the oldest producer is forgotten."""

REFUSED_SEQUENCE_KEPT_MS = 30_000
"""How long such a producer is remembered: the default of clients' `request.timeout.ms`."""

TIMEOUTS_PER_TICK_MAX = 500
"""Transactions that one turn of the event loop aborts for their time-out."""

TRANSACTIONAL_IDS_PER_EXPIRY_BATCH = 500
"""Transactional ids that one batch of tombstones removes."""

TRANSACTIONAL_IDS_PER_EXPIRY_TICK = 2_000
"""Transactional ids that one turn of the event loop removes. The next ones follow a moment later."""

MARKERS_PER_REQUEST_MAX = 2000
"""Partitions in one WriteTxnMarkers request. Further markers wait for the next one."""
