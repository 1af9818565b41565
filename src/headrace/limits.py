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

INLINE_COMPRESS_BYTES_MAX = 16 << 10
"""The most bytes of records that the event loop compresses with a topic's own codec. More are compressed on a thread:
zstd's highest levels take 3 ms for so many, and 900 ms for a megabyte."""

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

REQUEST_PARTS_07_MAX = 1_000
"""Parts of one multifetch or multiproduce of Kafka 0.7."""

READING_07_S_MAX = 5.0
"""How long one multifetch of Kafka 0.7 reads. Parts after that get no messages, and the client asks again."""

MESSAGES_PER_REQUEST_07_MAX = 1_000_000
"""Messages in one produce of Kafka 0.7, which takes a microsecond for each."""

POSITIONS_STEP_BYTES = 8 << 20
"""How much of a log is scanned for positions of Kafka 0.7 before other work of the thread has its turn."""

REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX = 1024
"""Requests of one connection that are read and not answered. Above it the broker stops reading the connection."""

ADMISSIONS_PER_CONNECTION_MAX = 1000
"""Decisions of the admission that one connection keeps; above it they are made anew."""

ADMITTED_NAME_CHARS_MAX = 512
"""The longest name about which a decision is kept. Clients choose names, of topics that do not exist, too, and without
it a connection could keep `ADMISSIONS_PER_CONNECTION_MAX` times a name of many megabytes."""

AUDIT_LINES_PER_SECOND_MAX = 200
"""Lines of the audit log in one second. Decisions beyond it are counted."""

AUDIT_LINES_PER_CLIENT_MAX = 20
"""Lines of the audit log in one second about one principal at one host."""

LOGGED_NAME_CHARS_MAX = 256
"""Characters of a name that clients choose in the log lines that strangers and denied clients cause. Names of topics
have at most 249; those of groups and users could have thousands, and lines of them would fill a disk in days."""

ACL_SCANS_PER_REQUEST_MAX = 100
"""Filters of one DeleteAcls without a resource name, each of which looks at all patterns; and those that one pattern
has for one principal."""

ACLS_DELETED_PER_REQUEST_MAX = 100_000
"""ACLs in the answer to one DeleteAcls, in which every filter names all that it matches."""

ACL_PATTERNS_PER_WRITE_MAX = 50
"""Patterns whose rules are written to the metadata store in one multi. ZooKeeper takes a megabyte at once."""

ACL_DECISIONS_KEPT_MAX = 10_000
"""Decisions about types of resources (`permits_any`) that a broker keeps; above it they are made anew."""

DECISIONS_PER_SLICE = 2000
"""Decisions of the admission in one turn of the event loop, for one request. One that is not kept counts as ten."""

REQUESTS_PER_TURN_MAX = 64
"""Requests of one connection handled in one turn of the event loop, however they are answered, before other connections
get their turn."""

RECEIVERS_PER_TURN_MAX = 256
"""Connections that are read in one turn of the event loop, before whatever else it has to do."""

ROOM_BYTES = 128 << 10
"""Up to a multiple of this the file of an active segment is extended with zeros. See `log.segment.preallocation`."""

LATE_BYTES_MAX = 512 << 10
"""Bytes of batches that one turn of the event loop appends before they are written."""

LATE_BATCHES_MAX = 2048
"""The number of these batches."""

LATE_FRAME_BYTES_MAX = 64 << 10
"""The size of a produce request whose batches are written with those of others."""

RECEIVERS_OF_THE_LOOP = 4
"""Connections that the event loop watches itself: one pass over the sockets of a few gains nothing."""

SHORT_ANSWER_BYTES_MAX = 512
"""Of an answer that is written without the dispatcher, which has one topic's name at most."""

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

REGULAR_EXPRESSION_CHARS_MAX = 8 << 10
"""Characters of the regular expression in a ConsumerGroupHeartbeat, which is compiled in one turn of the event loop: in
up to forty milliseconds."""

REGULAR_EXPRESSION_PROGRAM_BYTES_MAX = 1 << 20
"""Memory of one compiled regular expression. It bounds the time for compiling it, and for one topic."""

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

FETCH_SESSION_PARTITIONS_OF_INSTANCE_MAX = 100_000
"""Partitions in all fetch sessions of one instance together, which has a cache of its own: sessions of others are not
evicted for it."""

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
"""Topics that one Metadata request, or one produce of Kafka 0.7, may create. The client asks again for the others, and
gets the next ones."""

INLINE_CHECKS_NS_MAX = 5_000_000
"""How long the event loop checks the small compressed batches of one Produce. A thread checks the rest."""

TOPIC_NAME_CHARS_MAX = 249

INSTANCE_NAME_CHARS_MAX = 1_000
"""Characters of the names that an instance's client gives to groups, transactional ids, users and client ids, and of
the resources and principals in its rules: brokers have them in memory, and limit how many there are."""

INSTANCE_VALUE_CHARS_MAX = 16 << 10
"""Characters of one setting of an instance's topic."""

PARTITIONS_PER_TOPIC_MAX = 100_000

FILE_SEND_BYTES_MAX = 1 << 20
"""Bytes of a log file in one `sendfile`. The kernel copies nothing, but makes packets of them for 0.1 to 0.3 ms."""

COLD_READ_CHUNK_BYTES = 256 << 10
"""Bytes of a file that are probed for the page cache together, and read from the disk at once."""

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

SHARE_STATE_BATCHES_MAX = 10_000
"""State batches of one share partition in one write: the most records that a share partition may have locked
(group.share.partition.max.record.locks)."""

SHARE_STATE_BATCH_BYTES_MAX = 256 << 10
"""Bytes of records of share partitions that are written in one batch, unless one record is larger."""

SHARE_STATE_WAITING_MAX = 100
"""Requests for one share partition that wait for the record that is being written. Its leader sends one at a time."""

SHARE_STATES_PER_TICK_MAX = 500
"""Share partitions that one turn of the event loop snapshots, or removes with their topic."""

SHARE_STATE_ELEMENTS_PER_REQUEST_MAX = 20_000
"""Share partitions and state batches in one request to a share coordinator. Further ones wait for the next request. A
partition takes up to two elements on the wire, and `ELEMENTS_PER_REQUEST_MAX` may be in a request."""

ASSIGNED_IN_PLACE_MAX = 1000
"""Members and partitions of a group whose assignment is computed at once. That of a larger group is computed on a
thread: 1,000 members and 10,000 partitions take longer than a turn of the event loop may."""

SHARE_SESSION_PARTITIONS_MAX = 100_000
"""Partitions in all share sessions of an instance, or of the operator, together. Above it a client gets no session."""

SHARE_PARTITIONS_MAX = 100_000
"""Share partitions of an instance, or of the operator, that a broker has in use. Above it a client's fetches of
further ones are refused."""

STREAMS_TOPOLOGY_ELEMENTS_MAX = 10_000
"""Subtopologies, topics and topic settings in the topology of one streams group. Its configuration is one turn of the
event loop."""

STREAMS_TASKS_MAX = 10_000
"""Active tasks of one streams group. It bounds what one group may have computed."""

STREAMS_RECORDS_PER_BATCH_MAX = 1_000
"""Records in one batch that a streams group writes. A change of more records is several batches."""

STREAMS_TOPIC_FAILURES_MAX = 1_000
"""Internal topics of streams groups whose failed creation a broker remembers."""

GROUP_BATCH_BYTES_MAX = 256 << 10
"""Bytes of records of one group that are written in one batch, unless one event has more."""

SUBSCRIBED_TOPICS_MAX = 10_000
"""Topics to which a member of a consumer or share group subscribes by name. Each is looked up, hashed and stored in one
turn of the event loop. In Apache Kafka the bound is the size of the member's record, a mebibyte."""

TURNED_AWAY_MAX = 1000
"""Connections over the rate of their address that are kept open for a while before they are closed."""

QUOTA_BUCKETS_MAX = 20_000
"""Buckets of one kind of quota. Above it those with the smallest debts are forgotten: clients choose their ids."""

HANDSHAKES_MAX = 10_000
"""TLS connections of a broker whose handshake is not complete. Above it the oldest of the entrance that has most
is closed. Before its first byte a connection costs a socket and half a kilobyte."""

HANDSHAKES_BEGUN_MAX = 1_000
"""Of those, connections that have sent a byte and so have a state of OpenSSL, which takes up to a hundred kilobytes."""

HANDSHAKE_MS = 10_000
"""How long a connection may be silent, and how long its handshake may take after the first byte."""

PROXY_HEADER_BYTES_MAX = 4096
"""The largest header of the PROXY protocol. Load balancers send up to some hundred bytes."""

PROXY_HEADERS_MAX = 10_000
"""Connections from trusted proxies whose header is not complete. Above it the oldest of the entrance that has most
is closed."""

REFUSALS_LOGGED_PER_SECOND = 5
"""Lines about refused connections, of which clients cause as many as they like. Further ones are counted."""

AUTHENTICATING_MAX = 10_000
"""Connections that have yet to authenticate, on all listeners together. Above it the oldest of the listener that has
most is closed: a client needs milliseconds, and a slow peer must not keep others out."""

AUTHENTICATION_FRAME_BYTES_MAX = 16 << 10
"""Bytes of a request of a client that has yet to authenticate, unless its mechanism has large messages (OAUTHBEARER and
GSSAPI): then sasl.server.max.receive.size counts. `AUTHENTICATION_BYTES_MAX` bounds the memory of all of them."""

AUTHENTICATION_ROUNDS_MAX = 16
"""Messages of one client in one authentication, requests for versions among them. GSSAPI has up to five."""

AUTHENTICATION_BYTES_MAX = 256 << 20
"""Bytes of all incomplete messages of clients that have yet to authenticate, by the sizes that they announce. Above it
the connections whose messages began first are closed: large tokens come in milliseconds."""

SENT_AHEAD_BYTES_MAX = 64 << 10
"""Bytes that one client may send behind a message of its authentication before that is answered, and that are kept: of
small requests, each of which costs a quarter of a kilobyte, about two hundred."""

DELEGATION_TOKEN_CHARS_MAX = 16 << 10
"""Characters in the names of owner, requester and renewers of one delegation token. Each user may have a thousand."""

DELEGATION_TOKENS_MAX = 100_000
"""Delegation tokens of a cluster. Apache Kafka has no such limit; every broker keeps all of them in memory."""

AUTHENTICATING_AT_ONCE_MAX = 2
"""Threads that verify tokens of clients. Others wait."""

REFUSED_WRITES_LOGGED_PER_SECOND_MAX = 10
"""Lines in the log about writes that a disk has refused, for writes that were put off and for others."""

FAILED_AUTHENTICATIONS_LOGGED_PER_SECOND_MAX = 10
"""Failed authentications that are logged one by one. The others of the second are counted."""

INLINE_INSTANCE_BYTES_MAX = 16 << 10
"""The largest definition of an instance that is read on the event loop: an address list of some 500 networks, each of
which takes some microseconds. A larger one is read on a thread."""

INLINE_NETWORKS_MAX = 500
"""The longest address list that is checked on the event loop."""

INSTANCE_DOCUMENT_CHARS_MAX = 1 << 20
"""Characters of the JSON that creates or alters an instance. An address list of 10,000 networks has about 400,000."""
