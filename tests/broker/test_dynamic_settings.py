"""Settings of a broker that change while it runs: each one's effect, by table.

Topic defaults reach the logs (`TOPIC_DEFAULTS` has a value for each of them), and requests (`effects_on_requests`).
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.broker.app import running
from headrace.broker.produce.transaction_partitions import ClientKind, TransactionalProducerId
from headrace.broker.services import Services
from headrace.config import TOPIC_SETTINGS, parse_broker, parse_value
from headrace.config.dynamic import DYNAMIC
from headrace.controller.decisions.topics import RequestedTopic
from headrace.errors import ErrorCode
from headrace.metadata.broker_configs import ALL
from headrace.metadata.config_changes import Alteration, ConfigChange, ConfigOperation
from headrace.protocol import messages as m
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.header import read_header
from headrace.types import TopicPartition
from tests.asker import Asker
from tests.eventually import WITHIN_SECONDS, eventually_async
from tests.wire import batch

TOPIC, OWN = "plain", "with-own"

TOPIC_DEFAULTS = {
    "compression.gzip.level": "8",
    "compression.lz4.level": "7",
    "compression.zstd.level": "6",
    "compression.type": "lz4",
    "headrace.log.flush.acks": "true",
    "headrace.log.preallocate.room": "never",
    "log.cleaner.delete.retention.ms": "5",
    "log.cleaner.max.compaction.lag.ms": "70000",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.cleaner.min.compaction.lag.ms": "6",
    "log.cleanup.policy": "compact,delete",
    "log.flush.interval.messages": "7",
    "log.flush.interval.ms": "8",
    "log.index.interval.bytes": "9",
    "log.index.size.max.bytes": "4096",
    "log.message.format.version": "0.10.2",
    "log.message.timestamp.after.max.ms": "10",
    "log.message.timestamp.before.max.ms": "11",
    "log.message.timestamp.difference.max.ms": "12",
    "log.message.timestamp.type": "LogAppendTime",
    "log.preallocate": "true",
    "log.retention.bytes": "13",
    "log.retention.ms": "14",
    "log.roll.jitter.ms": "15",
    "log.roll.ms": "16",
    "log.segment.bytes": "2048",
    "log.segment.delete.delay.ms": "17",
    "message.max.bytes": "18",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "true",
}


class Run(NamedTuple):
    """A broker of this process."""

    services: Services
    bootstrap: str

    async def set(self, entity: str = ALL, **values: str | None) -> None:
        """Sets or (None) deletes dynamic settings; underscores stand for dots."""
        await self.change({name.replace("_", "."): value for name, value in values.items()}, entity)

    async def change(self, values: dict[str, str | None], entity: str = ALL) -> None:
        changes = [
            ConfigChange(k, ConfigOperation.DELETE if v is None else ConfigOperation.SET, v) for k, v in values.items()
        ]
        await self.services.settings.rewrite(entity, Alteration(changes))

    async def produce(self, records: bytes, acks: int = 1) -> m.ProduceResponse.PartitionProduceResponse:
        each = m.ProduceRequest.PartitionProduceData(index=0, records=records)
        data = [m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[each])]
        request = m.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data)

        def ask() -> m.ProduceResponse.PartitionProduceResponse:
            with Asker(self.bootstrap) as asker:
                answer: m.ProduceResponse = asker.ask(request, 9)
            return answer.responses[0].partition_responses[0]

        return await asyncio.to_thread(ask)


@asynccontextmanager
async def broker(directory: Path, **settings: str) -> AsyncIterator[Run]:
    given = {"listeners": "127.0.0.1:0", "log.dirs": str(directory), **settings}
    async with running(parse_broker(given)) as (services, listeners):
        await services.controller.create_topics(
            [RequestedTopic(TOPIC), RequestedTopic(OWN, configs={"retention.ms": "99"})]
        )
        yield Run(services, f"127.0.0.1:{listeners[0].port}")


@pytest.mark.slow
@pytest.mark.parametrize("entity", [ALL, "0"])
async def test_each_default_of_topics_reaches_the_logs_of_a_running_broker(tmp_path: Path, entity: str) -> None:
    by_broker = {s.broker_names[0][0]: (attribute, s) for attribute, s in TOPIC_SETTINGS.values() if s.broker_names}
    assert TOPIC_DEFAULTS.keys() == by_broker.keys(), "each default of topics has a value in the table"
    async with broker(tmp_path / "data") as run:
        log = run.services.replicas.leader(TOPIC, 0).log
        kept = run.services.replicas.leader(OWN, 0).log
        for name, text in TOPIC_DEFAULTS.items():
            attribute, setting = by_broker[name]
            wanted, before = parse_value(setting, text, name), getattr(log.config, attribute)
            assert wanted != before, name
            await run.change({name: text}, entity)
            await eventually_async(lambda: getattr(log.config, attribute) == wanted, name)  # noqa: B023
            assert kept.config.retention_ms == 99, "a topic's own config takes precedence"
            await run.change({name: None}, entity)
            await eventually_async(lambda: getattr(log.config, attribute) == before, name)  # noqa: B023


class Effect(NamedTuple):
    """What changes for a request."""

    setting: dict[str, str | None]
    records: bytes
    acks: int
    is_changed: Callable[[m.ProduceResponse.PartitionProduceResponse], bool]


def refused(code: ErrorCode) -> Callable[[m.ProduceResponse.PartitionProduceResponse], bool]:
    return lambda answer: answer.error_code == code


def at(timestamp_ms: int) -> bytes:
    return bytes(encode_batch([Record(0, timestamp_ms, b"k", b"v", ())]))


def effects_on_requests() -> dict[str, Effect]:
    """Made for the test, because one timestamp is half an hour ahead of the clock."""
    ahead = time.time_ns() // 1_000_000 + 1_800_000
    return {
        "message.max.bytes": Effect(
            {"message.max.bytes": "100"}, batch([bytes(500)]), 1, refused(ErrorCode.MESSAGE_TOO_LARGE)
        ),
        "log.message.timestamp.type": Effect(
            {"log.message.timestamp.type": "LogAppendTime"},
            batch([b"v"]),
            1,
            lambda answer: answer.log_append_time_ms > 0,
        ),
        "log.message.timestamp.before.max.ms": Effect(
            {"log.message.timestamp.before.max.ms": "1000"}, at(1000), 1, refused(ErrorCode.INVALID_TIMESTAMP)
        ),
        "log.message.timestamp.after.max.ms": Effect(
            {"log.message.timestamp.after.max.ms": "1000"}, at(ahead), 1, refused(ErrorCode.INVALID_TIMESTAMP)
        ),
        "log.cleanup.policy": Effect(
            {"log.cleanup.policy": "compact"}, batch([b"without a key"]), 1, refused(ErrorCode.INVALID_RECORD)
        ),
    }


async def test_defaults_of_topics_apply_to_requests(tmp_path: Path) -> None:
    async with broker(tmp_path / "data") as run:
        for name, effect in effects_on_requests().items():
            for setting, is_changed in ((effect.setting, True), (dict.fromkeys(effect.setting), False)):
                ends = time.monotonic() + WITHIN_SECONDS
                await run.change(setting)
                while effect.is_changed(await run.produce(effect.records, effect.acks)) is not is_changed:
                    assert time.monotonic() < ends, name


async def test_a_new_topic_is_created_with_the_defaults_in_force(tmp_path: Path) -> None:
    def create(name: str) -> tuple[str, int]:
        wish = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        with Asker(run.bootstrap) as asker:
            [topic] = asker.ask(m.CreateTopicsRequest(topics=[wish], timeout_ms=10_000), 5).topics
        return next((each.value, each.config_source) for each in topic.configs if each.name == "retention.ms")

    async with broker(tmp_path / "data") as run:
        assert (await asyncio.to_thread(create, "before"))[1] == 5
        await run.set(log_retention_ms="111")
        assert await asyncio.to_thread(create, "after") == ("111", 3)
        assert run.services.replicas.leader("after", 0).log.config.retention_ms == 111


async def test_the_size_of_the_isr_that_a_produce_needs_changes(tmp_path: Path) -> None:
    async with broker(tmp_path / "data") as run:
        state = run.services.replicas.leader(TOPIC, 0).state
        await run.set(min_insync_replicas="2")
        await eventually_async(lambda: state.min_insync_replicas == 2, "the new default")


async def test_stored_batches_are_compressed_and_segments_rolled_by_new_defaults(tmp_path: Path) -> None:
    async with broker(tmp_path / "data") as run:
        log = run.services.replicas.leader(TOPIC, 0).log
        await run.set(compression_type="gzip", log_segment_bytes="1500", log_retention_bytes="2000")
        await eventually_async(lambda: log.config.segment_bytes == 1500, "the new defaults")
        for _ in range(8):
            assert not (await run.produce(batch([bytes(range(256)) * 4]))).error_code
        found = log.read(0, 10_000, end_offset=log.log_end_offset, at_least_one=True)
        assert Codec.of_attributes(read_header(found.file.read(61, found.position)).attributes) is Codec.GZIP
        assert len(log.segments) > 1
        list(run.services.replicas.logs.delete_old_segments(run.services.now_ms()))
        assert log.log_start_offset > 0


CLEANER = {
    "log.cleaner.threads": ("threads", 3), "log.cleaner.backoff.ms": ("backoff_ms", 123),
    "log.cleaner.dedupe.buffer.size": ("map_bytes_max", 1 << 20),
    "log.cleaner.io.buffer.load.factor": ("load_factor", 0.5), "log.cleaner.io.buffer.size": ("read_bytes", 4096),
    "log.cleaner.io.max.bytes.per.second": ("io_bytes_per_second", 1e6),
}  # fmt: skip
"""Attributes of the cleaner's settings, which it reads when it chooses logs and begins to clean one."""

OTHERS = {
    "follower.replication.throttled.rate", "group.consumer.assignment.interval.ms",
    "group.share.assignment.interval.ms", "group.streams.assignment.interval.ms", "leader.replication.throttled.rate",
    "max.connection.creation.rate", "max.connections", "max.connections.per.ip", "max.connections.per.ip.overrides",
    "num.recovery.threads.per.data.dir", "num.replica.fetchers", "producer.id.expiration.ms",
    "replica.alter.log.dirs.io.max.bytes.per.second", "sasl.mechanism.inter.broker.protocol",
    "transaction.partition.verification.enable",
}  # fmt: skip
"""Settings with a test of their own, here, in `test_replication`, `test_replica_moves`, and in `tests/network`."""

TLS = {name for name in DYNAMIC if name.startswith("ssl.")}
"""Settings with a test in `test_tls_changes`."""


def test_each_dynamic_setting_has_a_test_of_its_effect() -> None:
    assert DYNAMIC.keys() == TOPIC_DEFAULTS.keys() | CLEANER.keys() | OTHERS | TLS


async def test_the_log_cleaner_takes_new_settings(tmp_path: Path) -> None:
    async with broker(tmp_path / "data", **{"log.cleaner.threads": "2"}) as run:
        cleaner = run.services.replicas.logs.cleaner
        for name, (attribute, value) in CLEANER.items():
            before = getattr(cleaner.settings, attribute)
            await run.change({name: str(value)})
            assert getattr(cleaner.settings, attribute) == value, name
            await run.change({name: None})
            assert getattr(cleaner.settings, attribute) == before, name


async def test_groups_take_new_defaults_of_the_broker(tmp_path: Path) -> None:
    async with broker(tmp_path / "data") as run:
        configs = run.services.group_configs
        for kind in ("consumer", "share", "streams"):
            name = f"{kind}.assignment.interval.ms"
            assert configs.number("g", name) == 1000
            await run.change({f"group.{name}": "1500"})
            assert configs.number("g", name) == 1500


async def test_the_threads_of_the_next_recovery_change(tmp_path: Path) -> None:
    async with broker(tmp_path / "data") as run:
        await run.set(num_recovery_threads_per_data_dir="4")
        assert run.services.replicas.logs.recovery_threads == 4


async def test_transactions_of_older_clients_are_not_verified_any_more(tmp_path: Path) -> None:
    async with broker(tmp_path / "data") as run:
        producer = TransactionalProducerId("nobody", 5, 0)
        batches = {TopicPartition(TOPIC, 0): 0}
        verified = await run.services.transaction_partitions.begin(producer, batches, ClientKind.OLD)
        assert verified.errors
        await run.set(transaction_partition_verification_enable="false")
        verified = await run.services.transaction_partitions.begin(producer, batches, ClientKind.OLD)
        assert not verified.errors


async def test_idle_producers_expire_by_a_new_age(tmp_path: Path) -> None:
    async with broker(tmp_path / "data") as run:
        log = run.services.replicas.leader(TOPIC, 0).log
        idempotent = bytes(
            encode_batch([Record(0, 1, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0)
        )
        assert not (await run.produce(idempotent, -1)).error_code
        in_an_hour = run.services.now_ms() + 3_600_000
        list(run.services.replicas.logs.expire_producers(in_an_hour))
        assert 7 in log.producers.entries
        await run.set(producer_id_expiration_ms="60000")
        list(run.services.replicas.logs.expire_producers(in_an_hour))
        assert 7 not in log.producers.entries


@pytest.mark.parametrize(
    ("name", "limit"),
    [("max.connections", "1"), ("max.connections.per.ip", "1"), ("max.connections.per.ip.overrides", "127.0.0.1:1")],
)
async def test_further_connections_are_refused_beyond_a_new_limit(tmp_path: Path, name: str, limit: str) -> None:
    def is_served() -> bool:
        try:
            with Asker(run.bootstrap) as asker:
                asker.socket.settimeout(0.5)
                asker.ask(m.ApiVersionsRequest(), 0)
        except OSError:  # closed at once, or not accepted
            return False
        return True

    async with broker(tmp_path / "data") as run:
        host, port = run.bootstrap.split(":")
        first = await asyncio.to_thread(socket.create_connection, (host, int(port)))
        assert await asyncio.to_thread(is_served)
        await run.change({name: limit})
        assert not await asyncio.to_thread(is_served)
        await run.change({name: None})
        assert await asyncio.to_thread(is_served)
        first.close()


async def test_a_restarted_broker_begins_with_the_dynamic_settings(tmp_path: Path) -> None:
    async with broker(tmp_path / "data") as run:
        await run.set(log_retention_ms="77", log_cleaner_backoff_ms="55")
    given = {"listeners": "127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
    async with running(parse_broker(given)) as (services, _):
        assert services.replicas.leader(TOPIC, 0).log.config.retention_ms == 77
        assert services.replicas.logs.cleaner.settings.backoff_ms == 55
