"""What is wrong with a history's transactions. Pure: a history in, findings out.

What was committed is told by the log of each partition's leader at the end: a transactional record is committed if the
next marker of its producer commits. This is compared with what clients know, and with what readers saw.

    aborted read      a reader of committed records got one that is not committed in the end
    fractured read    a reader of committed records did not get one that it passed
    unstable          a reader of committed records got one beyond the last stable offset
    uncommitted       a transaction's commit was acknowledged, and a record of it is not committed
    not aborted       a record is committed, and its transaction never was
    torn              a transaction is committed in one partition, and not in another
    early offset      a group's offset was read before its transaction was committed, or of one that never was
    lost offset       an acknowledged offset is not there in the end
    processed         the records before a group's offset were not each processed once, in committed transactions
    epoch             two lives of producers got the same id and epoch
    forgotten         the coordinator did not know an id in use
    unfinished        long after everything was healed a transaction, or a client of one, was not at its end
"""

from collections import Counter
from collections.abc import Iterator

from tests.simulation.finding import Finding, time
from tests.simulation.history import GroupOffset, History, Kind, Outcome, Promises, Replica, Stored, Transaction

INPUT = 0


def check_transactions(history: History, promises: Promises) -> Iterator[Finding]:
    """Everything that is wrong."""
    committed = {number: _committed(replica) for number, replica in _leaders(history).items()}
    yield from _readings(history, committed)
    yield from _outcomes(history, committed)
    yield from _offsets(history)
    yield from _processed(history, committed)
    yield from _epochs(history)
    yield from _forgotten(history, promises)
    for each in history.unfinished:
        yield Finding("unfinished", each.partition, each.what)


def _leaders(history: History) -> dict[int, Replica]:
    chosen = {}
    for replica in sorted(history.replicas, key=lambda each: (each.is_leader, each.leader_epoch, len(each.records))):
        if replica.partition >= 0:
            chosen[replica.partition] = replica
    return chosen


def _committed(replica: Replica) -> dict[int, Stored]:
    """The committed records by offset."""
    pending: dict[int, list[Stored]] = {}
    committed = {}
    for each in replica.records:
        if each.offset >= replica.high_watermark:
            break
        if each.kind is Kind.PLAIN:
            committed[each.offset] = each
        elif each.kind is Kind.TRANSACTIONAL:
            pending.setdefault(each.producer_id, []).append(each)
        else:
            ended = pending.pop(each.producer_id, [])
            if each.kind is Kind.COMMIT:
                committed.update((record.offset, record) for record in ended)
    return dict(sorted(committed.items()))


def _readings(history: History, committed: dict[int, dict[int, Stored]]) -> Iterator[Finding]:
    told = set()
    for reading in history.committed_readings:
        known = committed.get(reading.partition)
        if known is None:
            continue
        where = f"{reading.reader} at {time(reading.at_us)} from broker {reading.broker}"
        seen = {each.offset: each.value for each in reading.records}
        for offset, value in seen.items():
            if (offset not in known or known[offset].value != value) and (reading.partition, offset, 0) not in told:
                told.add((reading.partition, offset, 0))
                yield Finding(
                    "aborted read", reading.partition, f"{where}: {value!r} at offset {offset} is not committed"
                )
        for offset in range(reading.position, reading.next_position):
            if offset in known and offset not in seen and (reading.partition, offset, 1) not in told:
                told.add((reading.partition, offset, 1))
                yield Finding(
                    "fractured read", reading.partition, f"{where}: lacks {known[offset].value!r} at offset {offset}"
                )
        if reading.next_position > max(reading.last_stable_offset, reading.position):
            yield Finding(
                "unstable",
                reading.partition,
                f"{where}: read to offset {reading.next_position}, beyond {reading.last_stable_offset}",
            )


def _outcomes(history: History, committed: dict[int, dict[int, Stored]]) -> Iterator[Finding]:
    values = {number: {each.value for each in known.values()} for number, known in committed.items()}
    for transaction in history.transactions:
        there = [each for each in transaction.values if each.value in values.get(each.partition, ())]
        name = f"transaction {transaction.name}"
        if transaction.outcome is Outcome.ACKNOWLEDGED:
            for each in transaction.values:
                if each not in there and each.partition in values:
                    yield Finding(
                        "uncommitted",
                        each.partition,
                        f"{name} was committed at {time(transaction.ended_us)}; {each.value!r} is not",
                    )
        elif there and not _may_be_committed(transaction):
            yield Finding("not aborted", there[0].partition, f"{name} was never committed; {there[0].value!r} is")
        elif there and len(there) < len(transaction.values):
            missing = next(each for each in transaction.values if each not in there)
            yield Finding(
                "torn",
                missing.partition,
                f"{name}: {there[0].value!r} in partition {there[0].partition} is committed, {missing.value!r} is not",
            )


def _may_be_committed(transaction: Transaction) -> bool:
    return transaction.commit_began_us >= 0 and transaction.outcome is not Outcome.REFUSED


def _offsets(history: History) -> Iterator[Finding]:
    by_name = {each.name: each for each in history.transactions}
    told = set()
    for read in history.group_offsets:
        if read.offset < 0 or read.transaction in told:
            continue
        transaction = by_name[read.transaction]
        where = f"{read.group} at {time(read.at_us)}: offset {read.offset} of transaction {transaction.name}"
        if not _may_be_committed(transaction):
            told.add(read.transaction)
            yield Finding("early offset", INPUT, f"{where}, which was never committed")
        elif read.at_us < transaction.commit_began_us:
            told.add(read.transaction)
            yield Finding("early offset", INPUT, f"{where}, which was not committed yet")
    for read in _final_offsets(history):
        known = max(
            (
                each.offset
                for each in history.transactions
                if each.group == read.group and each.outcome is Outcome.ACKNOWLEDGED
            ),
            default=-1,
        )
        if read.offset < known:
            yield Finding("lost offset", INPUT, f"{read.group} is at {read.offset}, after {known} was acknowledged")


def _final_offsets(history: History) -> list[GroupOffset]:
    return [each for each in history.group_offsets if each.is_final]


def _processed(history: History, committed: dict[int, dict[int, Stored]]) -> Iterator[Finding]:
    """A processor's output ends with the offset of its input. Processors leave out each other's."""
    for read in _final_offsets(history):
        if INPUT not in committed:
            continue
        prefix = f"{read.group.removesuffix('-group')}."
        done = Counter(
            int(each.value.rpartition("<")[2])
            for known in committed.values()
            for each in known.values()
            if each.value.startswith(prefix) and "<" in each.value
        )
        expected = [
            offset for offset, each in committed[INPUT].items() if offset < read.offset and "<" not in each.value
        ]
        for offset in expected:
            if done[offset] != 1:
                yield Finding(
                    "processed",
                    INPUT,
                    f"{read.group} is at {read.offset}, and has {done[offset]} outputs for offset {offset}",
                )
        for offset in sorted(done.keys() - set(expected)):
            yield Finding("processed", INPUT, f"{read.group} is at {read.offset}, and has an output for {offset}")


def _epochs(history: History) -> Iterator[Finding]:
    first: dict[tuple[int, int], str] = {}
    for each in history.initialized:
        before = first.setdefault((each.producer_id, each.epoch), each.client)
        if before != each.client:
            yield Finding(
                "epoch",
                INPUT,
                f"{each.client} got producer {each.producer_id}, epoch {each.epoch} at {time(each.at_us)}, as {before} "
                "before",
            )


def _forgotten(history: History, promises: Promises) -> Iterator[Finding]:
    for each in history.forgotten:
        idle_ms = (each.at_us - each.used_us) // 1000
        if idle_ms < promises.unused_id_kept_ms:
            yield Finding(
                "forgotten",
                INPUT,
                f"{each.transactional_id} was not known to its coordinator at {time(each.at_us)}, {idle_ms} ms after "
                f"{each.client} had used it",
            )
