"""What a broker was told and what it answered, by a client that remembers, and what must then be found after a crash.

    story = Story(random.Random(seed))
    story.check(bootstrap)        every acknowledged record is there, in order, once; nothing else; topics; offsets
    story.write(bootstrap, 30)    thirty random requests; OSError when the broker dies under them

A request without an answer, or refused by the disk, is in doubt: what it asked for may be there or not, but as a whole.
A record of an idempotent producer that is in doubt is sent again until it is acknowledged, so that at the end each is
there exactly once.
"""

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.records.format2.batch import decode_records, iter_headers
from tests.asker import Asker
from tests.eventually import WITHIN_SECONDS
from tests.wire import INIT_PRODUCER_ID, Wire, batch, string

FLUSHED, PLAIN, BUSY, DURABLE = "flushed", "plain", "busy", "durable"
TOPICS = {
    FLUSHED: {"flush.messages": "1", "segment.bytes": "1500", "index.interval.bytes": "100", "retention.ms": "-1"},
    PLAIN: {"segment.bytes": "1300", "index.interval.bytes": "100", "retention.ms": "-1"},
    BUSY: {"flush.messages": "7", "segment.bytes": "4000", "retention.ms": "-1"},
    DURABLE: {
        "headrace.flush.acks": "true",
        "segment.bytes": "1400",
        "index.interval.bytes": "100",
        "retention.ms": "-1",
    },
}
EXTRA = ("extra-0", "extra-1", "extra-2")
GROUP = "readers"
REFUSED_BY_DISK = {
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


class Unexpected(AssertionError):
    """An answer that no state of the disk explains."""


@dataclass
class Written:
    """One partition: the value at each offset, and the batch that is in doubt."""

    topic: str
    partition: int
    is_idempotent: bool
    producer_id: int = -1
    values: list[bytes] = field(default_factory=list)
    in_doubt: list[bytes] = field(default_factory=list)
    deleted_to: int = 0

    def acknowledged(self, base_offset: int, sent: list[bytes]) -> None:
        """`sent` was said to be at `base_offset`."""
        if base_offset != len(self.values):
            raise Unexpected(f"{self.topic}-{self.partition}: {base_offset} acknowledged, not {len(self.values)}")
        self.in_doubt = []
        self.values += sent

    def found(self, start_offset: int, values: list[bytes]) -> None:
        """The partition holds `values` from `start_offset` on."""
        where = f"{self.topic}-{self.partition} from {start_offset}"
        if start_offset > self.deleted_to:
            raise Unexpected(f"{where}: deleted were only the offsets below {self.deleted_to}")
        expected = self.values[start_offset:]
        if values[: len(expected)] != expected:
            same = next((i for i, (a, b) in enumerate(zip(values, expected, strict=False)) if a != b), len(values))
            raise Unexpected(f"{where}: {len(expected)} acknowledged, of which only {same} are there")
        more = values[len(expected) :]
        if more and more != self.in_doubt:
            raise Unexpected(f"{where}: {len(more)} records that nobody waits for, first {more[0][:40]!r}")
        if not self.is_idempotent:
            self.values += more
            self.in_doubt = []


class Story:
    """The client. What it does is up to `chance`."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.partitions = [
            Written(FLUSHED, 0, True),
            Written(PLAIN, 0, True),
            Written(PLAIN, 1, False),
            Written(BUSY, 0, False),
            Written(DURABLE, 0, True),
            Written(DURABLE, 1, False),
        ]
        self.topics: dict[str, bool | None] = dict.fromkeys(EXTRA, False)
        """Whether a topic is there; None when that is in doubt."""
        self.dying: set[str] = set()
        """Topics that may be deleted at any time from now on: the request was written down, or not."""
        self.is_disk_failing = False
        """Whether a broker runs to which the disk refuses something."""
        self.committed: set[int] = {-1}
        """What may be the group's offset."""
        self.sent = 0

    def begin(self, bootstrap: str) -> None:
        """Make the topics, in peace."""
        with Wire(bootstrap) as wire:
            for name, settings in TOPICS.items():
                assert wire.create_topic(name, 2, settings) == 0
            for each in self.partitions:
                if each.is_idempotent:
                    answer = wire.ask(INIT_PRODUCER_ID, 0, string(None) + (60_000).to_bytes(4, "big"))
                    assert answer[4:6] == bytes(2)
                    each.producer_id = int.from_bytes(answer[6:14], "big")
            while wire.ask(10, 0, string(GROUP))[:2] != bytes(2):  # makes the topic of offsets
                time.sleep(0.01)
            self._commit(wire)
            assert len(self.committed) == 1

    # After a crash

    def check(self, bootstrap: str) -> None:
        """Compare everything; what a failing disk refuses to show is passed over."""
        with Wire(bootstrap) as wire, Asker(bootstrap) as asker:
            wire.socket.settimeout(WITHIN_SECONDS)
            asker.socket.settimeout(WITHIN_SECONDS)
            for each in self.partitions:
                read = _read_all(wire, each.topic, each.partition)
                if isinstance(read, ErrorCode):
                    self._refused(read, f"reading {each.topic}-{each.partition}")
                else:
                    each.found(*read)
            self._check_topics(asker)
            self._check_committed(wire)

    def _refused(self, code: int, what: str) -> None:
        if not self.is_disk_failing or code not in REFUSED_BY_DISK:
            raise Unexpected(f"{what}: {ErrorCode(code).name}")

    def _check_topics(self, asker: Asker) -> None:
        listed = {topic.name for topic in asker.ask(m.MetadataRequest(topics=None), 9).topics}
        for name in TOPICS:
            if name not in listed:
                raise Unexpected(f"topic {name} is gone")
        for name, is_there in self.topics.items():
            if is_there is not None and is_there != (name in listed):
                raise Unexpected(f"topic {name} is {'gone' if is_there else 'back'}")
            if name not in self.dying or name not in listed:
                self.dying.discard(name)
                self.topics[name] = name in listed
        strangers = listed - TOPICS.keys() - self.topics.keys() - {"__consumer_offsets"}
        if strangers:
            raise Unexpected(f"topics that nobody made: {strangers}")

    def _check_committed(self, wire: Wire) -> None:
        body = string(GROUP) + _one(string(PLAIN) + _one(bytes(4)))
        offset, code = -1, 0
        for _ in range(1000):
            answer = wire.ask(9, 1, body)
            at = 4 + 2 + len(PLAIN) + 4 + 4
            offset = int.from_bytes(answer[at : at + 8], "big", signed=True)
            code = int.from_bytes(answer[-2:], "big", signed=True)
            if code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
        if code:
            self._refused(code, "the group's offset")
        elif offset not in self.committed:
            raise Unexpected(f"the group's offset is {offset}, not one of {self.committed}")
        else:
            self.committed = {offset}

    # Until the next

    def write(self, bootstrap: str, requests: int) -> None:
        """Random requests. Raises OSError when the broker is gone."""
        with ExitStack() as stack:
            wire, asker = stack.enter_context(Wire(bootstrap)), stack.enter_context(Asker(bootstrap))
            wire.socket.settimeout(WITHIN_SECONDS)
            asker.socket.settimeout(WITHIN_SECONDS)
            for _ in range(requests):
                what = self.chance.random()
                if what < 0.75:
                    self._produce(wire, self.chance.choice(self.partitions))
                elif what < 0.83:
                    self._delete_records(asker, self.chance.choice(self.partitions))
                elif what < 0.91:
                    self._commit(wire)
                else:
                    self._change_topics(wire, asker, self.chance.choice(EXTRA))

    def finish(self, bootstrap: str) -> None:
        """Have nothing in doubt any more."""
        with Wire(bootstrap) as wire:
            wire.socket.settimeout(WITHIN_SECONDS)
            for each in self.partitions:
                if each.is_idempotent and each.in_doubt:
                    self._produce(wire, each)
                    assert not each.in_doubt

    def _produce(self, wire: Wire, each: Written) -> None:
        if each.is_idempotent and each.in_doubt:
            sent = each.in_doubt
        else:
            sent = [self._value() for _ in range(self.chance.choice([1, 1, 2, 5]))]
        producer = (each.producer_id, 0, len(each.values)) if each.is_idempotent else (-1, -1, -1)
        if not each.is_idempotent and each.in_doubt and not self._is_settled(wire, each):
            return
        each.in_doubt = sent
        code, base_offset = wire.produce(each.topic, batch(sent, producer=producer), partition=each.partition)
        if code:
            self._refused(code, f"a record for {each.topic}-{each.partition}")
        else:
            each.in_doubt = []
            each.acknowledged(base_offset, sent)

    def _is_settled(self, wire: Wire, each: Written) -> bool:
        """Whether it can be seen if what was refused is there all the same. Where an acknowledgement means the disk it
        may be there and wait for that, out of sight: until the next start nobody knows."""
        if each.topic == DURABLE:
            return False
        read = _read_all(wire, each.topic, each.partition)
        if isinstance(read, ErrorCode):
            return False
        each.found(*read)
        return True

    def _value(self) -> bytes:
        self.sent += 1
        return b"%d " % self.sent + b"x" * self.chance.choice([0, 10, 100, 200])

    def _delete_records(self, asker: Asker, each: Written) -> None:
        offset = self.chance.randint(0, len(each.values))
        part = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=each.partition, offset=offset)
        topic = m.DeleteRecordsRequest.DeleteRecordsTopic(name=each.topic, partitions=[part])
        each.deleted_to = max(each.deleted_to, offset)
        answer = asker.ask(m.DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 1).topics[0].partitions[0]
        if answer.error_code:
            self._refused(answer.error_code, f"deleting records of {each.topic}")

    def _commit(self, wire: Wire) -> None:
        offset = self.chance.randrange(1 << 30)
        self.committed.add(offset)
        part = bytes(4) + offset.to_bytes(8, "big") + string(None)
        body = string(GROUP) + (-1).to_bytes(4, "big", signed=True) + string("") + (-1).to_bytes(8, "big", signed=True)
        code = 0
        for _ in range(1000):
            answer = wire.ask(8, 2, body + _one(string(PLAIN) + _one(part)))
            code = int.from_bytes(answer[-2:], "big", signed=True)
            if code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
        if code:
            self._refused(code, "an offset")
        else:
            self.committed = {offset}

    def _change_topics(self, wire: Wire, asker: Asker, name: str) -> None:
        was, self.topics[name] = self.topics[name], None
        if was is not True and name not in self.dying:
            code: int = wire.create_topic(name, self.chance.randint(1, 3), {"segment.bytes": "1000"})
            if code == 0:
                self.topics[name] = True
                code, base_offset = wire.produce(name, batch([b"first"]))
                if code == 0 and base_offset:
                    raise Unexpected(f"new topic {name} begins with old records, up to {base_offset}")
            elif code == ErrorCode.TOPIC_ALREADY_EXISTS and was is None:
                self.topics[name], code = True, 0
            elif code == ErrorCode.TOPIC_ALREADY_EXISTS and self.is_disk_failing:
                self.dying.add(name)  # deleted, and then a partition's files could not be renamed
                code = 0
            what = "a new topic"
        else:
            self.dying.add(name)
            code = asker.ask(m.DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 4).responses[0].error_code
            if code == 0 or (name in self.dying and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                self.topics[name], code = False, 0
                self.dying.discard(name)
            what = "deleting a topic"
        if code:
            self._refused(code, what)


def _one(item: bytes) -> bytes:
    return (1).to_bytes(4, "big") + item


def _read_all(wire: Wire, topic: str, partition: int) -> tuple[int, list[bytes]] | ErrorCode:
    """Where a partition begins, and every value from there on; or why that cannot be read."""
    places: Sequence[tuple[int, int, int]] = [wire.list_offset(topic, at, partition=partition) for at in (-2, -1)]
    if places[0][0] or places[1][0]:
        return ErrorCode(places[0][0] or places[1][0])
    start, end = places[0][2], places[1][2]
    values: list[bytes] = []
    while start + len(values) < end:
        offset = start + len(values)
        fetched = wire.fetch(topic, offset, partition=partition, max_wait_ms=0)
        if fetched.error_code:
            return ErrorCode(fetched.error_code)
        for position, header in iter_headers(fetched.records):
            for record in decode_records(fetched.records[position:], header):
                if record.offset >= end:
                    raise Unexpected(f"{topic}-{partition}: {record.offset} can be read, and it ends at {end}")
                if record.offset >= offset:
                    if record.offset != start + len(values):
                        raise Unexpected(f"{topic}-{partition}: offset {record.offset} after {start + len(values) - 1}")
                    values.append(record.value or b"")
        if start + len(values) == offset:
            raise Unexpected(f"{topic}-{partition}: ends at {end}, but nothing is read at {offset}")
    return start, values
