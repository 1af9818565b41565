"""The metrics page: collects all metrics of a broker, under Kafka's names.

The JMX exporter's own example for Kafka (`kafka-2_0_0.yml`) makes the same names of Apache Kafka's beans, so that
existing dashboards work:

    kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec  kafka_server_brokertopicmetrics_messagesin_total
    kafka.network:type=RequestMetrics,name=TotalTimeMs          kafka_network_requestmetrics_totaltimems
    kafka.log:type=Log,name=Size                                kafka_log_log_size

A sample without a topic is for all topics together, as in Kafka. Kafka has percentiles of times; headrace has
histograms and sums, which can be added up over brokers. Kafka has no bean for the lag of groups: its metrics have the
names of kafka-lag-exporter. Left out: errors by code, metrics of followers and transactions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from headrace.broker.metrics import (
    authentication,
    client_telemetry,
    log_cleaner,
    log_directories,
    quotas,
    replication,
    shares,
)
from headrace.broker.metrics.family import GAUGE, HISTOGRAM, SUMMARY, Family, Sample, counter, gauge, number
from headrace.broker.metrics.group_lag import GroupLag
from headrace.broker.metrics.traffic import Traffic
from headrace.broker.partitions.partition import Partition
from headrace.broker.request.dispatch import Dispatcher, message_name
from headrace.broker.services import Services
from headrace.coordinators.groups.classic.group import GroupState
from headrace.coordinators.groups.group import GroupKind
from headrace.in_slices import Turns, in_slices
from headrace.network.request_times import FIRST_BOUND_BITS, RequestTimes
from headrace.network.server import Server
from headrace.types import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.instance_hosting import InstanceHosting

_NS_PER_MS = 1_000_000
_TURN = 512

_STATES = {
    GroupKind.CONSUMER: ("Empty", "Assigning", "Reconciling", "Stable"),
    GroupKind.SHARE: ("Empty", "Stable"),
    GroupKind.STREAMS: ("Empty", "NotReady", "Assigning", "Reconciling", "Stable"),
}
"""The states of groups whose coordinator assigns."""

_TOPIC_COUNTERS = (
    ("messagesin", "messages_in", "Records appended."),
    ("bytesin", "bytes_in", "Bytes of record batches appended."),
    ("bytesout", "bytes_out", "Bytes of record batches sent to consumers."),
    ("totalproducerequests", "produces", "Batches appended, one per partition of a Produce request."),
    ("totalfetchrequests", "fetches", "Partitions read, one per partition of a Fetch request."),
    ("producemessageconversions", "produce_conversions", "Records converted to the stored message format."),
    ("fetchmessageconversions", "fetch_conversions", "Records converted to an older message format."),
    ("failedproducerequests", "failed_produces", "Partitions of Produce requests that were refused."),
    ("failedfetchrequests", "failed_fetches", "Partitions of Fetch requests that were refused."),
)
_LOG_GAUGES = (
    ("size", "Size of the log in bytes."),
    ("numlogsegments", "Segments of the log."),
    ("logstartoffset", "The log start offset."),
    ("logendoffset", "The log end offset."),
)
_PHASES = (
    ("requestqueuetimems", "queue_ns", "of waiting for earlier requests of the same connection"),
    ("localtimems", "local_ns", "of decoding, handling and encoding"),
    ("remotetimems", "remote_ns", "of waiting for replicas, records, group members or a thread"),
    ("responsesendtimems", "send_ns", "of waiting for earlier responses, and of sending the response"),
)


class Page:
    """Collects the metrics of a running broker's services."""

    def __init__(self, broker: Services, dispatcher: Dispatcher, server: Server, hosting: InstanceHosting) -> None:
        self._broker, self._dispatcher, self._server, self._hosting = broker, dispatcher, server, hosting
        self._lag = GroupLag()

    async def render(self, accept: str) -> tuple[bytes, str]:
        """Renders the current page; returns it with its content type. Other work gets its turn meanwhile."""
        families = [family async for family in self._families()]

        def write_out() -> tuple[bytes, str]:
            from headrace.broker.metrics.exposition import render

            return render(families, accept)

        return await self._broker.loop.run_in_executor(None, write_out)

    async def _families(self) -> AsyncIterator[Family]:
        for family in chain(self._traffic(), self._requests(), self._connections(), self._waiting()):
            yield family
            await asyncio.sleep(0)  # there may be as many topics as partitions
        for family in await self._cluster():
            yield family
        for family in await self._partitions():
            yield family
        for family in replication.families(self._broker.replication):
            yield family
        for family in quotas.families(self._broker.throttling, self._server.limits):
            yield family
        for family in self._instances():
            yield family
        for family in authentication.families(self._hosting.security.known):
            yield family
        if self._hosting.listeners is not None:
            from headrace.broker.metrics import instance_connections  # most clusters have no instances

            for family in instance_connections.families(self._hosting.listeners, self._server):
                yield family
        for family in log_directories.families(self._broker.replicas):
            yield family
        logs = self._broker.replicas.logs
        directories = [each.path for each in logs.directories.in_use]
        for family in log_cleaner.families(logs.cleaner, directories, self._broker.now_ms()):
            yield family
        for family in await self._groups():
            yield family
        for family in await shares.families(self._broker.shares.started, self._broker.share_state.started):
            yield family
        for family in client_telemetry.families(self._broker.telemetry(), self._broker.now_ms()):
            yield family

    def _instances(self) -> Iterable[Family]:
        """Imported where there are instances."""
        found = self._broker.instances.all()
        if not found:
            return ()
        from headrace.broker.metrics import instances

        return instances.families(found, self._broker.instance_flow())

    def _traffic(self) -> Iterable[Family]:
        table = self._broker.replicas.traffic
        table.keep_only({partition.key.topic for partition in self._broker.replicas})
        rows: list[tuple[dict[str, str], Traffic]] = [({}, table.total())]
        rows += [({"topic": topic}, traffic) for topic, traffic in table]
        for name, attribute, text in _TOPIC_COUNTERS:
            samples = [(labels, getattr(traffic, attribute)) for labels, traffic in rows]
            yield counter(f"kafka_server_brokertopicmetrics_{name}", text, samples)

    def _requests(self) -> Iterable[Family]:
        requests = {
            message_name(handler.api_key, ""): handler.times
            for handler in self._dispatcher.handlers.values()
            if any(handler.times.by_version)
        }
        yield counter(
            "kafka_network_requestmetrics_requests",
            "Requests received.",
            [
                ({"request": name, "version": str(version)}, count)
                for name, times in requests.items()
                for version, count in enumerate(times.by_version)
                if count
            ],
        )
        for name, attribute, text in _PHASES:
            samples = [
                Sample(suffix, {"request": request}, value)
                for request, times in requests.items()
                for suffix, value in (
                    ("_count", sum(times.totals)), ("_sum", getattr(times, attribute) / _NS_PER_MS)
                )
            ]  # fmt: skip
            yield Family(f"kafka_network_requestmetrics_{name}", SUMMARY, f"Milliseconds {text}.", samples)
        conversions = self._broker.replicas.conversion_times.items()
        yield Family(
            "kafka_network_requestmetrics_messageconversionstimems",
            SUMMARY,
            "Milliseconds of converting message formats, for requests that need a conversion.",
            [
                Sample(suffix, {"request": request}, value)
                for request, times in conversions
                for suffix, value in (("_count", times.count), ("_sum", times.elapsed_ns / _NS_PER_MS))
            ],
        )
        totals = [sample for name, times in requests.items() for sample in _distribution(name, times)]
        name = "kafka_network_requestmetrics_totaltimems"
        yield Family(
            name, HISTOGRAM, "Milliseconds from the last byte of a request to the last byte of its response.", totals
        )

    def _connections(self) -> Iterable[Family]:
        server, prefix = self._server, "kafka_server_socket_server_metrics_connection"
        counts: Counter[str] = Counter(each.listener for each in server.connections)
        rows = [({"listener": name}, counts[name]) for name in server.listener_names]
        yield gauge(f"{prefix}_count", "Open connections.", rows)
        yield counter(f"{prefix}_creation", "Connections accepted.", [({}, server.opened)])
        yield counter(f"{prefix}_close", "Connections closed.", [({}, server.opened - len(server.connections))])

        if server.tls is not None and server.handshakes is not None:
            from headrace.broker.metrics import tls  # only brokers with TLS listeners pay for the import

            yield from tls.families(server.tls, server.handshakes)

    def _waiting(self) -> Iterable[Family]:
        sizes: Counter[str] = Counter()
        for operation in self._broker.purgatory.operations():
            key = getattr(operation, "api_key", None)
            requests = getattr(operation, "requests", 1)  # a queue of produces is one operation for all of them
            sizes["OffsetCommit" if key is None else message_name(key, "")] += requests
        rows = [({"delayedOperation": name}, sizes[name]) for name in sorted({"Produce", "Fetch", *sizes})]
        name = "kafka_server_delayedoperationpurgatory_purgatorysize"
        yield gauge(name, "Requests that wait for records or replicas, or for their timeout.", rows)

    async def _cluster(self) -> list[Family]:
        topics = self._broker.metadata.topics.values()
        turns, partitions, offline, imbalanced = Turns(), 0, 0, 0
        for topic in topics:
            for each in topic.partitions.values():
                partitions += 1
                offline += each.leader == NO_LEADER
                imbalanced += bool(each.replicas) and each.leader != each.replicas[0]
                await turns.count()
        controller = "kafka_controller_kafkacontroller"
        is_active = self._broker.controller.is_active
        text = "Partitions whose leader is not the preferred replica."
        return [
            number(f"{controller}_activecontrollercount", "1 on the active controller.", int(is_active)),
            number(f"{controller}_globaltopiccount", "Topics of the cluster.", len(topics)),
            number(f"{controller}_globalpartitioncount", "Partitions of the cluster.", partitions),
            number(f"{controller}_offlinepartitionscount", "Partitions without a leader.", offline),
            number(f"{controller}_preferredreplicaimbalancecount", text, imbalanced),
        ]

    async def _partitions(self) -> list[Family]:
        partitions = list(self._broker.replicas)
        led, under_replicated, under_min_isr = 0, 0, 0
        samples: list[list[Sample]] = [[] for _ in _LOG_GAUGES]
        under: list[Sample] = []
        async for partition in in_slices(partitions, _TURN):
            log, labels = partition.log, _labels(partition.key)
            numbers = (log.size_bytes, len(log.segments), log.log_start_offset, log.log_end_offset)
            for found, value in zip(samples, numbers, strict=True):
                found.append(Sample("", labels, value))
            if partition.is_leader:
                is_under = _is_under_replicated(partition)
                led += 1
                under_replicated += is_under
                under_min_isr += not partition.state.has_min_isr
                under.append(Sample("", labels, int(is_under)))
        manager = "kafka_server_replicamanager"
        text = "Led partitions with fewer in-sync replicas than min.insync.replicas."
        return [
            number(f"{manager}_partitioncount", "Partitions of this broker.", len(partitions)),
            number(f"{manager}_leadercount", "Partitions that this broker leads.", led),
            number(
                f"{manager}_underreplicatedpartitions",
                "Led partitions with fewer in-sync replicas than replicas.",
                under_replicated,
            ),
            number(f"{manager}_underminisrpartitioncount", text, under_min_isr),
            *(
                Family(f"kafka_log_log_{name}", GAUGE, text, found)
                for (name, text), found in zip(_LOG_GAUGES, samples, strict=True)
            ),
            Family("kafka_cluster_partition_underreplicated", GAUGE, "1 if a replica is not in sync.", under),
        ]

    async def _groups(self) -> list[Family]:
        groups, broker = self._broker.groups, self._broker
        _, overviews = groups.overview()
        states = Counter((each.kind, each.state) for each in overviews)
        kinds = Counter(each.kind for each in overviews)
        manager, lag = "kafka_coordinator_group_groupmetadatamanager", "kafka_consumergroup_group"
        metrics = "kafka_server_group_coordinator_metrics"
        families = [
            gauge(
                f"{metrics}_group_count",
                "Groups that this broker coordinates, by protocol.",
                [({"protocol": kind.value}, kinds[kind]) for kind in GroupKind],
            ),
            *(
                gauge(
                    f"{metrics}_{kind.value}_group_count",
                    f"Groups of the {kind.value} protocol, by state.",
                    [({"state": name}, states[kind, name]) for name in names],
                )
                for kind, names in _STATES.items()
            ),
            number(f"{manager}_numgroups", "Classic groups that this broker coordinates.", kinds[GroupKind.CLASSIC]),
        ]
        families += [
            number(
                f"{manager}_numgroups{state.value.lower()}",
                f"Classic groups in state {state.value}.",
                states[GroupKind.CLASSIC, state.value],
            )
            for state in GroupState
        ]
        positions = groups.positions()
        families.append(number(f"{manager}_numoffsets", "Committed offsets of the coordinated groups.", len(positions)))
        lags = [each async for each in self._lag.measure(positions, broker.replicas, broker.now_ms())]
        rows = [({"group": each.position.group_id, **_labels(each.position.partition)}, each) for each in lags]
        return [
            *families,
            gauge(f"{lag}_offset", "The committed offset.", [(labels, each.position.offset) for labels, each in rows]),
            gauge(
                f"{lag}_lag",
                "Records between the committed offset and the high watermark.",
                [(labels, each.records) for labels, each in rows],
            ),
            gauge(
                f"{lag}_lag_read_committed",
                "Records between the committed offset and the last stable offset.",
                [(labels, each.stable_records) for labels, each in rows],
            ),
            gauge(
                f"{lag}_lag_seconds",
                "Seconds since the first unconsumed record was produced; 0 if there is none.",
                [(labels, each.seconds) for labels, each in rows if each.seconds is not None],
            ),
        ]


def _distribution(request: str, times: RequestTimes) -> Iterable[Sample]:
    used = max((index for index, count in enumerate(times.totals) if count), default=0)
    for index, count in enumerate(accumulate(times.totals[: used + 1])):
        bound_ms = (1 << (FIRST_BOUND_BITS + index)) / _NS_PER_MS
        yield Sample("_bucket", {"request": request, "le": str(bound_ms)}, count)
    labels, total_ns = {"request": request}, times.queue_ns + times.local_ns + times.remote_ns + times.send_ns
    yield Sample("_bucket", {"request": request, "le": "+Inf"}, sum(times.totals))
    yield Sample("_count", labels, sum(times.totals))
    yield Sample("_sum", labels, total_ns / _NS_PER_MS)


def _is_under_replicated(partition: Partition) -> bool:
    return len(partition.state.isr) < len(partition.state.replicas)


def _labels(key: TopicPartition) -> dict[str, str]:
    return {"topic": key.topic, "partition": str(key.partition)}
