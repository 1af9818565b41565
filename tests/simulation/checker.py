"""What is wrong with a history, in the manner of Jepsen's Kafka workload. Pure: a history in, findings out.

    lost          acknowledged, and not in the log that was re-read from its start at the end
    vanished      read once, below a high watermark, and gone at the end
    phantom       read or stored, but never sent, or sent and refused
    conflict      two values at one offset, among all reads and all logs up to their high watermarks
    duplicate     one value at two offsets, though its producer was idempotent
    unordered     a producer's values, sent one after the other, in another order
    backwards     a reader got an offset again, or an older one
    gap           a reader was led past offsets that hold records
    refused       a reader's position, which it had reached by reading, is out of range
    reset         a reader was told that its position is lost, though nothing is that it had read
    watermark     a leader's high watermark went back in its term, or lay beyond its log's end
    end           ListOffsets said that a partition ended before an offset that the same reader had been told of
    commit        a group's committed offset went back at one coordinator, or was lost in the end
    diverged      two replicas differ below both their high watermarks, or one lacks an offset below its own
    two leaders   two brokers led in one epoch
    leaderless    after everything was healed: no leader, although a member of the ISR is alive
    stalled       a producer with acks=all waited for a batch for longer than is promised
    unavailable   after everything was healed: a write was not taken, or a live replica never came back into the ISR

Records may be deleted on request: what is before the start of the leader's log in the end is not missed.

The rules for transactions are in `transaction_checker.py`, those for members of groups in `group_checker.py`, those for
instances in `instance_checker.py`. What
counts as broken depends on what is promised under the faults that were injected: `Promises`.
"""

from collections.abc import Iterable, Iterator

from tests.simulation.finding import Finding, time
from tests.simulation.group_checker import check_members
from tests.simulation.history import BEGINS_AGAIN, History, Kind, Outcome, Promises, Replica, Seen, Sent, Stored
from tests.simulation.instance_checker import check_instances
from tests.simulation.share_checker import check_shares
from tests.simulation.transaction_checker import check_transactions

SHOWN_MAX = 5
"""Findings of one kind beyond this are counted only."""

RECORDS = frozenset({Kind.PLAIN, Kind.TRANSACTIONAL})


def check(history: History, promises: Promises) -> list[Finding]:
    """Everything that is wrong, also in the histories of instances."""
    return [
        *_check_one(history, promises),
        *check_instances(history),
        *(
            each._replace(text=f"of {name}: {each.text}")
            for name, own in history.of_instances.items()
            for each in _check_one(own, promises._replace(pause_max_ms=0))  # producers wait for the limit
        ),
    ]


def _check_one(history: History, promises: Promises) -> list[Finding]:
    return [
        *_lost(history, promises),
        *_phantoms(history),
        *_conflicts(history),
        *_duplicates(history),
        *_unordered(history),
        *_readers(history),
        *_resets(history),
        *_watermarks(history),
        *_ends(history),
        *_commits(history),
        *_diverged(history),
        *_leaders(history),
        *_stalled(history, promises),
        *_available(history, promises),
        *check_transactions(history, promises),
        *check_members(history),
        *check_shares(history),
    ]


def report(findings: Iterable[Finding]) -> list[str]:
    """A few lines for each kind."""
    by_kind: dict[str, list[Finding]] = {}
    for each in findings:
        by_kind.setdefault(each.kind, []).append(each)
    lines = []
    for kind, some in by_kind.items():
        lines += [str(each) for each in some[:SHOWN_MAX]]
        if len(some) > SHOWN_MAX:
            lines.append(f"{kind}: and {len(some) - SHOWN_MAX} more")
    return lines


def _final(history: History) -> dict[int, dict[str, int]]:
    """Per partition: the offset of each value in the log of the leader (or, without one, of the longest), up to its
    high watermark."""
    chosen = {}
    for replica in sorted(history.replicas, key=lambda each: (each.is_leader, each.leader_epoch, len(each.records))):
        chosen[replica.partition] = replica
    return {
        number: {each.value: each.offset for each in reversed(replica.records) if each.offset < replica.high_watermark}
        for number, replica in chosen.items()
    }


def _starts(history: History) -> dict[int, int]:
    """Per partition: where its leader's log starts."""
    return {each.partition: each.log_start_offset for each in history.replicas if each.is_leader}


def _lost(history: History, promises: Promises) -> Iterator[Finding]:
    final, starts = _final(history), _starts(history)
    acknowledged = set()
    for sent in history.sent:
        if sent.outcome is not Outcome.ACKNOWLEDGED:
            continue
        acknowledged.add(sent.value)
        is_promised = promises.acks_all_kept if sent.acks == -1 else promises.acks_one_kept and sent.acks == 1
        if sent.offset < starts.get(sent.partition, 0):
            continue
        if is_promised and sent.value not in final.get(sent.partition, {}):
            yield Finding(
                "lost",
                sent.partition,
                f"{sent.value!r} of {sent.producer} was acknowledged (acks={_acks(sent)}) at offset {sent.offset} at "
                f"{time(sent.ended_us)} and is not in the log",
            )
    if not promises.read_kept:
        return
    told = set()
    for reading in history.readings:
        for seen in reading.records:
            is_kept = seen.offset >= starts.get(reading.partition, 0)
            is_there = seen.value in final.get(reading.partition, {})
            if is_kept and not is_there and (reading.partition, seen) not in told:
                told.add((reading.partition, seen))
                yield Finding(
                    "vanished",
                    reading.partition,
                    f"{seen.value!r} was read at offset {seen.offset} by {reading.reader} from broker "
                    f"{reading.broker} at {time(reading.at_us)} and is not in the log",
                )


def _acks(sent: Sent) -> str:
    return "all" if sent.acks == -1 else str(sent.acks)


def _phantoms(history: History) -> Iterator[Finding]:
    known = {(sent.partition, sent.value): sent for sent in history.sent}
    told = set()
    for partition, seen, where in _seen_records(history):
        sent = known.get((partition, seen.value))
        if (sent is None or sent.outcome is Outcome.REFUSED) and (partition, seen.value) not in told:
            told.add((partition, seen.value))
            what = "never sent there" if sent is None else "refused"
            yield Finding("phantom", partition, f"{seen.value!r} at offset {seen.offset} ({where}) was {what}")


def _seen_records(history: History) -> Iterator[tuple[int, Seen, str]]:
    """Every record of a producer that anybody read, or that lies in a log below its high watermark."""
    for reading in history.readings:
        for seen in reading.records:
            if seen.is_marker:
                continue
            yield reading.partition, seen, f"read by {reading.reader} at {time(reading.at_us)}"
    for replica in history.replicas:
        if replica.partition < 0:
            continue
        for stored in replica.records:
            if stored.offset < replica.high_watermark and stored.kind in RECORDS:
                yield replica.partition, Seen(stored.offset, stored.value), f"in the log of broker {replica.broker}"


def _conflicts(history: History) -> Iterator[Finding]:
    first: dict[tuple[int, int], tuple[str, str]] = {}
    told = set()
    for partition, seen, where in _seen_records(history):
        value, before = first.setdefault((partition, seen.offset), (seen.value, where))
        if value != seen.value and (partition, seen.offset) not in told:
            told.add((partition, seen.offset))
            yield Finding(
                "conflict", partition, f"offset {seen.offset} is {value!r} ({before}) and {seen.value!r} ({where})"
            )


def _duplicates(history: History) -> Iterator[Finding]:
    idempotent = {(sent.partition, sent.value) for sent in history.sent if sent.is_idempotent}
    first: dict[tuple[int, str], tuple[int, str]] = {}
    told = set()
    for partition, seen, where in _seen_records(history):
        key = (partition, seen.value)
        offset, before = first.setdefault(key, (seen.offset, where))
        if offset != seen.offset and key in idempotent and key not in told:
            told.add(key)
            yield Finding(
                "duplicate", partition, f"{seen.value!r} is at offset {offset} ({before}) and {seen.offset} ({where})"
            )


def _unordered(history: History) -> Iterator[Finding]:
    final = _final(history)
    last: dict[tuple[str, int], tuple[int, str]] = {}
    for sent in history.sent:
        offset = final.get(sent.partition, {}).get(sent.value)
        if offset is None or sent.outcome is not Outcome.ACKNOWLEDGED:
            continue
        key = (sent.producer, sent.partition)
        before, value = last.get(key, (-1, ""))
        if offset < before:
            yield Finding(
                "unordered",
                sent.partition,
                f"{sent.producer} sent {sent.value!r} after {value!r}; they are at {offset} and {before}",
            )
        last[key] = (offset, sent.value)


def _readers(history: History) -> Iterator[Finding]:
    positions: dict[tuple[str, int], int] = {}
    for reading in history.readings:
        key = (reading.reader, reading.partition)
        where = f"{reading.reader} at {time(reading.at_us)} from broker {reading.broker}"
        if reading.error == "OFFSET_OUT_OF_RANGE":
            yield Finding("refused", reading.partition, f"{where}: position {reading.position} is out of range")
        expected = positions.get(key, reading.position)
        if reading.error == BEGINS_AGAIN:
            expected = reading.position
        for seen in reading.records:
            if seen.offset < expected:
                yield Finding("backwards", reading.partition, f"{where}: offset {seen.offset} after {expected - 1}")
            elif seen.offset > expected:
                yield Finding("gap", reading.partition, f"{where}: offset {seen.offset} instead of {expected}")
            expected = seen.offset + 1
        positions[key] = expected


def _resets(history: History) -> Iterator[Finding]:
    final, starts = _final(history), _starts(history)
    for reset in history.resets:
        read = {
            (seen.offset, seen.value)
            for reading in history.readings
            if (reading.reader, reading.partition) == (reset.reader, reset.partition) and reading.at_us <= reset.at_us
            for seen in reading.records
            if seen.offset < reset.position
        }
        start = starts.get(reset.partition, 0)
        if 0 < start >= reset.position:  # all of it was deleted
            continue
        read = {each for each in read if each[0] >= start}
        kept = {(offset, value) for value, offset in final.get(reset.partition, {}).items()}
        if read <= kept:
            yield Finding(
                "reset",
                reset.partition,
                f"{reset.reader} at {time(reset.at_us)} was told by broker {reset.broker} that position "
                f"{reset.position} of epoch {reset.epoch} is lost: {reset.told}",
            )


def _watermarks(history: History) -> Iterator[Finding]:
    highest: dict[tuple[int, int, int], int] = {}
    for led in history.led:
        key = (led.partition, led.epoch, led.broker)
        where = f"broker {led.broker} in epoch {led.epoch} at {time(led.at_us)}"
        if led.high_watermark < highest.get(key, 0):
            yield Finding("watermark", led.partition, f"{where}: {led.high_watermark} after {highest[key]}")
        if led.high_watermark > led.log_end_offset:
            yield Finding("watermark", led.partition, f"{where}: {led.high_watermark} beyond {led.log_end_offset}")
        highest[key] = max(led.high_watermark, highest.get(key, 0))
    for reading in history.readings:
        if reading.records and reading.records[-1].offset >= reading.high_watermark:
            yield Finding(
                "watermark",
                reading.partition,
                f"{reading.reader} got offset {reading.records[-1].offset} at {time(reading.at_us)} from broker "
                f"{reading.broker}, whose high watermark was {reading.high_watermark}",
            )


def _ends(history: History) -> Iterator[Finding]:
    highest: dict[tuple[str, int], int] = {}
    for seen in history.ends:
        key = (seen.reader, seen.partition)
        if seen.offset < highest.get(key, 0):
            yield Finding(
                "end",
                seen.partition,
                f"{seen.reader} was told {seen.offset} by broker {seen.broker} at {time(seen.at_us)}, after "
                f"{highest[key]}",
            )
        highest[key] = max(seen.offset, highest.get(key, 0))


def _commits(history: History) -> Iterator[Finding]:
    """A coordinator that was replaced and does not know it yet may tell an older offset than its successor, as in
    Apache Kafka; but it never goes back itself, and in the end nothing acknowledged is lost."""
    highest: dict[tuple[str, int, int], int] = {}
    for commit in history.commits:
        own, all_ = (commit.group, commit.partition, commit.broker), (commit.group, commit.partition, -1)
        known = highest.get(all_ if commit.is_final else own, -1)
        if commit.is_read and commit.offset < known:
            yield Finding(
                "commit",
                commit.partition,
                f"{commit.group} read {commit.offset} back from broker {commit.broker} at {time(commit.at_us)}, after "
                f"{known} {'was acknowledged' if commit.is_final else 'there'}",
            )
        for key in (own, all_):
            highest[key] = max(commit.offset, highest.get(key, -1))


def _diverged(history: History) -> Iterator[Finding]:
    by_partition: dict[int, dict[int, tuple[int, Stored]]] = {}
    for replica in history.replicas:
        known = by_partition.setdefault(replica.partition, {})
        for stored in replica.records:
            if stored.offset >= replica.high_watermark:
                break
            broker, other = known.setdefault(stored.offset, (replica.broker, stored))
            if other != stored:
                yield Finding(
                    "diverged", replica.partition, f"broker {broker} has {other}, broker {replica.broker} has {stored}"
                )
                break
    for replica in history.replicas:
        missing = _missing(replica)
        if missing:
            found = by_partition[replica.partition].get(missing[0])
            others = f"broker {found[0]} has {found[1]}" if found is not None else "no replica has it"
            yield Finding(
                "diverged",
                replica.partition,
                f"broker {replica.broker} lacks {len(missing)} offsets from {missing[0]} on, below its high watermark "
                f"{replica.high_watermark}; {others}",
            )


def _missing(replica: Replica) -> list[int]:
    """The offsets of a replica that hold nothing though they are committed; nothing here is compacted."""
    held = {stored.offset for stored in replica.records}
    return [each for each in range(replica.log_start_offset, replica.high_watermark) if each not in held]


def _leaders(history: History) -> Iterator[Finding]:
    first: dict[tuple[int, int], int] = {}
    told = set()
    for led in history.led:
        key = (led.partition, led.epoch)
        broker = first.setdefault(key, led.broker)
        if broker != led.broker and key not in told:
            told.add(key)
            yield Finding(
                "two leaders",
                led.partition,
                f"brokers {broker} and {led.broker} in epoch {led.epoch} at {time(led.at_us)}",
            )


def _stalled(history: History, promises: Promises) -> Iterator[Finding]:
    if not promises.pause_max_ms:
        return
    for sent in history.sent:
        waited_ms = (sent.ended_us - sent.began_us) // 1000
        if sent.acks == -1 and sent.ended_us >= 0 and waited_ms > promises.pause_max_ms:
            yield Finding(
                "stalled",
                sent.partition,
                f"{sent.producer} waited {waited_ms} ms for {sent.value!r} from {time(sent.began_us)} on "
                f"({sent.outcome.value})",
            )


def _available(history: History, promises: Promises) -> Iterator[Finding]:
    for each in history.availability:
        if each.leader < 0:
            if each.live_isr:
                yield Finding("leaderless", each.partition, f"although {each.live_isr} of its ISR are alive")
        elif not each.took_a_write:
            yield Finding("unavailable", each.partition, f"broker {each.leader} leads it, and took no write")
        missing = [broker for broker in each.live_replicas if broker not in each.isr]
        if each.leader >= 0 and missing and promises.everyone_catches_up:
            yield Finding("unavailable", each.partition, f"replicas {missing} are alive and not in the ISR {each.isr}")
