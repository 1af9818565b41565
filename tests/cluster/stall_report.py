"""Where records are stuck: what the brokers say of partitions, transactions and a group, for a failure's report.

    replicas        each broker's metadata, where they differ; the size of each replica; of each leader the end of the
                    log, the high watermark, the last stable offset, and the transactions open in the partition
    transactions    the ids, as their coordinators know them
    group           its members with their epochs and assignments, and its offsets, with those of open transactions

A report never fails: what a broker does not answer is a line of it.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster

ANSWER_SECONDS = 5.0
"""Who has not answered by then is stuck, or stopped."""

DESCRIBE = {
    "consumer": (m.ConsumerGroupDescribeRequest, 0),
    "share": (m.ShareGroupDescribeRequest, 1),
    "streams": (m.StreamsGroupDescribeRequest, 0),
}
LATEST = -1
END_OF_LOG, HIGH_WATERMARK, LAST_STABLE = (0, 0), (-1, 0), (-1, 1)
"""The replica that asks for the latest offset, and its isolation level."""

Place = tuple[str, int]


def stall_report(cluster: LocalCluster, topic: str, group: str, kind: str) -> str:
    """All about the topics whose names contain `topic`, the internal ones, and a group of this kind."""
    lines = [f"---- what the brokers say at {_clock(time.time())} ----"]
    for part in (_replicas(cluster, topic), _transactions(cluster), _group(cluster, group, kind)):
        try:
            lines.extend(part)
        except Exception as error:  # the failure that is reported must not be lost
            lines.append(f"cannot be told: {error!r}")
    return "\n".join(lines)


def _replicas(cluster: LocalCluster, topic: str) -> Iterator[str]:
    views: defaultdict[Place, dict[int, str]] = defaultdict(dict)
    leaders: dict[Place, int] = {}
    sizes: defaultdict[Place, dict[int, int]] = defaultdict(dict)

    def metadata(broker: int, answer: m.MetadataResponse) -> Iterator[str]:
        brokers = sorted(each.node_id for each in answer.brokers)
        yield f"broker {broker}: the brokers are {brokers}, the controller is {answer.controller_id}"
        for each in answer.topics:
            name = each.name or ""
            for partition in each.partitions if topic in name or name.startswith("__") else ():
                place = name, partition.partition_index
                leaders[place] = partition.leader_id
                views[place][broker] = (
                    f"leader {partition.leader_id}, epoch {partition.leader_epoch}, ISR {sorted(partition.isr_nodes)}"
                )

    def logs(broker: int, answer: m.DescribeLogDirsResponse) -> Iterator[str]:
        for each in (each for directory in answer.results for each in directory.topics):
            for partition in each.partitions:
                sizes[each.name, partition.partition_index][broker] = partition.partition_size
        yield from ()

    yield from _of_all(cluster, m.MetadataRequest(topics=None), 12, metadata)
    yield from _of_all(cluster, m.DescribeLogDirsRequest(topics=None), 4, logs)
    for place, seen in sorted(views.items()):
        name = f"{place[0]}-{place[1]}"
        yield f"{name}: {seen if len(set(seen.values())) > 1 else next(iter(seen.values()))}, bytes {sizes[place]}"
        if (leader := cluster.brokers.get(leaders[place])) is not None:
            try:
                yield f"    {_ends(leader.bootstrap, *place)}"
            except OSError as error:
                yield f"    its leader does not answer: {error!r}"


def _ends(leader: str, topic: str, number: int) -> str:
    kind, asked = m.ListOffsetsRequest, m.DescribeProducersRequest
    ends = []
    for replica, isolation in (END_OF_LOG, HIGH_WATERMARK, LAST_STABLE):
        wanted = kind.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=LATEST)
        topics = [kind.ListOffsetsTopic(name=topic, partitions=[wanted])]
        answer = _ask(leader, kind(replica_id=replica, isolation_level=isolation, topics=topics), 7)
        (end,) = answer.topics[0].partitions
        ends.append(_or_error(end.error_code, end.offset))
    answer = _ask(leader, asked(topics=[asked.TopicRequest(name=topic, partition_indexes=[number])]), 0)
    opened = [
        f"of producer {each.producer_id} in epoch {each.producer_epoch} from offset {each.current_txn_start_offset}, "
        f"last written {_clock(each.last_timestamp / 1000)}"
        for each in answer.topics[0].partitions[0].active_producers
        if each.current_txn_start_offset >= 0
    ]
    return f"end {ends[0]}, high watermark {ends[1]}, last stable {ends[2]}, open transactions {opened}"


def _transactions(cluster: LocalCluster) -> Iterator[str]:
    def ids(broker: int, answer: m.ListTransactionsResponse) -> Iterator[str]:
        if answer.error_code:
            yield f"broker {broker} lists no transactions: {ErrorCode(answer.error_code).name}"
        names = [each.transactional_id for each in answer.transaction_states]
        described = _ask(cluster.brokers[broker].bootstrap, m.DescribeTransactionsRequest(transactional_ids=names), 0)
        for each in described.transaction_states:
            yield f"broker {broker} coordinates {each}"

    return _of_all(cluster, m.ListTransactionsRequest(), 0, ids)


def _group(cluster: LocalCluster, group: str, kind: str) -> Iterator[str]:
    describe, version = DESCRIBE[kind]

    def coordinator(broker: int, answer: m.FindCoordinatorResponse) -> Iterator[str]:
        (found,) = answer.coordinators
        yield f"broker {broker}: the coordinator of {group} is {_or_error(found.error_code, found.node_id)}"

    def description(broker: int, answer: Any) -> Iterator[str]:
        (described,) = answer.groups
        if described.error_code:
            return  # another broker coordinates it
        members, described.members = described.members, []
        yield from [f"broker {broker}: {described}", *(f"    {each}" for each in members)]

    def offsets(broker: int, answer: m.OffsetFetchResponse) -> Iterator[str]:
        committed = {
            f"{each.name}-{partition.partition_index}": _or_error(partition.error_code, partition.committed_offset)
            for each in answer.topics
            for partition in each.partitions
        }
        yield f"broker {broker}: the committed offsets are {_or_error(answer.error_code, committed)}"

    yield from _of_all(cluster, m.FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4, coordinator)
    yield from _of_all(cluster, describe(group_ids=[group]), version, description)
    for is_stable in (False, True):  # a partition with an offset in an open transaction is an error in the second
        request = m.OffsetFetchRequest(group_id=group, topics=None, require_stable=is_stable)
        yield from _of_all(cluster, request, 7, offsets)


def _of_all(
    cluster: LocalCluster, request: Message, version: int, tell: Callable[[int, Any], Iterator[str]]
) -> Iterator[str]:
    """What there is to tell of each broker's answer."""
    for number, server in cluster.brokers.items():
        try:
            yield from tell(number, _ask(server.bootstrap, request, version))
        except OSError as error:
            yield f"broker {number} does not answer {type(request).__name__}: {error!r}"


def _ask(address: str, request: Message, version: int) -> Any:
    with Asker(address) as asker:
        asker.socket.settimeout(ANSWER_SECONDS)
        return asker.ask(request, version)


def _or_error(code: int, what: object) -> object:
    return ErrorCode(code).name if code else what


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(seconds))
