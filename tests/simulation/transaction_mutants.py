"""Deliberate bugs in transactions, put into the running code for a test, as those in `mutants.py`.

marker lost at leader change    a marker that cannot be written at once is not sent again
markers are not sent again      the next coordinator does not send the markers of a decided transaction
epoch not bumped                InitProducerId returns the epoch that the producer before it has
ongoing not fenced              InitProducerId does not abort the transaction that is open
LSO past an open transaction    readers of committed records are served to the high watermark
aborted list left out           Fetch does not tell which transactions were aborted
offsets visible before commit   a group's offset is committed as soon as it is written
two coordinators                a replaced coordinator continues, and takes failed writes for done
decision not replicated         the coordinator answers EndTxn before its record is stored
expiry of a live id             ids expire although a transaction of theirs is open
"""

from dataclasses import replace

import pytest

from headrace.broker.coordinator_host.marker_sender import MarkerSender
from headrace.broker.fetch import fetch
from headrace.broker.partitions.partition import Partition
from headrace.coordinators.groups.offsets import GroupOffsets
from headrace.coordinators.runtime import Answer, OwnedPartitions
from headrace.coordinators.transactions import expiry
from headrace.coordinators.transactions.actions import Prepared
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.coordinators.transactions.requests import Ended, Initial, TransactionProducer
from headrace.coordinators.transactions.transaction import IDLE, Transaction, TransactionState
from headrace.coordinators.transactions.transactional_ids import TransactionalIds
from headrace.errors import ErrorCode
from tests.simulation import plan as kinds
from tests.simulation.mutant import Mutant
from tests.simulation.network import Weather
from tests.simulation.plan import Plan


def lose_marker_at_leader_change(patch: pytest.MonkeyPatch) -> None:
    def taken_for_written(self, missing):  # type: ignore[no-untyped-def]
        for each in filter(self._is_current, list(missing)):
            self._done(each)

    patch.setattr(MarkerSender, "_retry", taken_for_written)


def markers_are_not_sent_again(patch: pytest.MonkeyPatch) -> None:
    loaded = TransactionCoordinator.loaded

    def without_effects(self, replay, now_ms):  # type: ignore[no-untyped-def]
        loaded(self, replay, now_ms)
        return []

    patch.setattr(TransactionCoordinator, "loaded", without_effects)


def epoch_not_bumped(patch: pytest.MonkeyPatch) -> None:
    initialized = Transaction.initialized

    def same_epoch(self, timeout_ms, expected_epoch, now_ms):  # type: ignore[no-untyped-def]
        wanted = initialized(self, timeout_ms, expected_epoch, now_ms)
        return wanted if wanted is None or self.is_new else replace(wanted, producer_epoch=self.producer_epoch)

    patch.setattr(Transaction, "initialized", same_epoch)


def ongoing_not_fenced(patch: pytest.MonkeyPatch) -> None:
    fence = TransactionalIds.fence

    def only_timed_out(self, entry, reply, now_ms):  # type: ignore[no-untyped-def]
        if reply is None:
            return fence(self, entry, reply, now_ms)
        transaction = entry.transaction
        producer = TransactionProducer(transaction.producer_id, transaction.producer_epoch)
        return Answer(reply, Initial(ErrorCode.NONE, producer))

    patch.setattr(TransactionalIds, "fence", only_timed_out)


def stable_at_high_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "last_stable_offset", property(lambda self: self.high_watermark))


def leave_out_aborted(patch: pytest.MonkeyPatch) -> None:
    read = fetch.Fetch._read_partition

    def without_aborted(self, *arguments):  # type: ignore[no-untyped-def]
        answer = read(self, *arguments)
        answer.aborted_transactions = []
        return answer

    patch.setattr(fetch.Fetch, "_read_partition", without_aborted)


def offsets_before_commit(patch: pytest.MonkeyPatch) -> None:
    appended = GroupOffsets.appended_in_transaction

    def at_once(self, producer_id, offsets, record_offset):  # type: ignore[no-untyped-def]
        appended(self, producer_id, offsets, record_offset)
        self.end_transaction(producer_id, committed=True)

    patch.setattr(GroupOffsets, "appended_in_transaction", at_once)


def two_coordinators(patch: pytest.MonkeyPatch) -> None:
    appended, loaded = TransactionCoordinator.appended, TransactionCoordinator.loaded

    def taken_for_written(self, then, error, record_offset, now_ms):  # type: ignore[no-untyped-def]
        return appended(self, then, ErrorCode.NONE, record_offset, now_ms)

    def known_already(self, replay, now_ms):  # type: ignore[no-untyped-def]
        ids = self._ids
        for transactional_id in [key for key, entry in ids.entries.items() if entry.partition == replay.partition]:
            ids.drop(transactional_id)
        return loaded(self, replay, now_ms)

    def served_for_ever(self, partition):  # type: ignore[no-untyped-def]
        self._loading.pop(partition, None)

    patch.setattr(TransactionCoordinator, "appended", taken_for_written)
    patch.setattr(TransactionCoordinator, "loaded", known_already)
    patch.setattr(TransactionCoordinator, "unloaded", lambda self, partition, now_ms: [])
    patch.setattr(OwnedPartitions, "release", served_for_ever)


def answer_before_decision(patch: pytest.MonkeyPatch) -> None:
    write = TransactionalIds.write

    def answered_at_once(self, entry, wanted, then):  # type: ignore[no-untyped-def]
        if isinstance(then, Prepared) and not then.is_fence and then.reply is not None:
            after = wanted.completed(wanted.updated_ms)
            then.reply(Ended(ErrorCode.NONE, after.producer_id, after.producer_epoch))
            then = then._replace(reply=lambda ended: None)
        return write(self, entry, wanted, then)

    patch.setattr(TransactionalIds, "write", answered_at_once)


def expire_live_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(expiry, "IDLE", IDLE | {TransactionState.ONGOING})


READS = frozenset({"aborted read", "fractured read", "unstable"})
OUTCOMES = frozenset({"uncommitted", "not aborted", "torn"})
OFFSETS = frozenset({"early offset", "lost offset", "processed"})
HANGS = frozenset({"unfinished"})

_CALM = Plan(
    duration_ms=6_000,
    producers=(),
    readers=0,
    writers=(2, 0),
    committed_readers=1,
    transaction_timeout_ms=1500,
)
_ROUGH = _CALM._replace(
    duration_ms=10_000,
    gap_ms=500,
    faults=(kinds.CRASH, kinds.ELECT, kinds.STOP),
    weather=Weather(loss=0.02),
    failures_max=1,
)
_ISOLATED = _ROUGH._replace(faults=(kinds.ISOLATE,), gap_ms=1500)

TRANSACTION_MUTANTS = (
    Mutant("marker lost at leader change", lose_marker_at_leader_change, _ROUGH, HANGS | OUTCOMES, first_seed=2),
    Mutant("markers are not sent again", markers_are_not_sent_again, _ROUGH, HANGS | OUTCOMES),
    Mutant("epoch not bumped", epoch_not_bumped, _CALM, frozenset({"epoch"})),
    Mutant("ongoing not fenced", ongoing_not_fenced, _CALM, frozenset({"epoch"}) | OUTCOMES),
    Mutant("LSO past an open transaction", stable_at_high_watermark, _CALM, READS),
    Mutant("aborted list left out", leave_out_aborted, _CALM, READS),
    Mutant(
        "offsets visible before commit",
        offsets_before_commit,
        _CALM._replace(writers=(2,), processors=(2, 0)),
        OFFSETS,
    ),
    Mutant(
        "two coordinators",
        two_coordinators,
        _ISOLATED._replace(settings={"request.timeout.ms": "700"}),
        OUTCOMES | HANGS | {"epoch"},
    ),
    Mutant("decision not replicated", answer_before_decision, _ISOLATED, OUTCOMES | {"epoch"}, first_seed=8),
    Mutant(
        "expiry of a live id",
        expire_live_ids,
        _CALM._replace(
            settings={
                "transactional.id.expiration.ms": "1000",
                "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
            },
            promises=_CALM.promises._replace(unused_id_kept_ms=1000),
        ),
        HANGS | OUTCOMES | {"forgotten"},
    ),
)
