"""Deliberate bugs, each the kind that replication protocols have had, put into the running code for a test.

ack before ISR             acks=all is answered as soon as the leader has it
truncate to HW             a follower drops what is above its high watermark, and nobody compares epochs (KIP-101)
serve above HW             consumers get what is not committed yet
shrink without check       a leader leaves followers out of its ISR before the controller has agreed
zombie controller          a controller writes, and is heard, though another one was elected
unclean restart in ISR     who comes back without what power took is trusted as if it had everything (KIP-966)
no duplicate detection     a batch that is sent again is appended again
unknown is duplicate       sequences before what a log has of a producer are called duplicates, and never written
refusals are forgotten     behind a refused batch of an unknown producer the next one is appended: they change places
old formats diverge        a follower of messages without epochs does not compare what it has above its high watermark
blind truncation           a follower of messages without epochs drops what is above its high watermark (KIP-101)
wait for the ineligible    the high watermark waits for a follower that stops and may not join the ISR any more
trust by age of state      a registration older than a state counts as judged, though the write was decided before it
nobody is eligible         a crashed last member of the ISR leads, though others have every committed record (KIP-966)
eligible for ever          replicas stay eligible when the ISR suffices, and commits, without them
reliable without flush     records of a reliable topic are acknowledged before they are flushed
reliable as asked          a reliable topic acknowledges acks=1 when its leader alone has the record
empty log without epochs   the leader of a log that never had a record says that it knows no earlier epoch
lost tail of a segment     recovery takes it for a gap of compaction that a segment ends before the next one begins
"""

from collections.abc import Callable

import pytest

from headrace.broker.cluster.control_plane import ControlPlane
from headrace.broker.fetch import fetch, follower_fetch
from headrace.broker.partitions.durable_append import DurableAppends
from headrace.broker.partitions.partition import Partition
from headrace.broker.produce.plain_produce import Uncommitted, append_plainly
from headrace.broker.replication import followed, follower_log, replica_fetcher
from headrace.broker.request import dispatch
from headrace.config import TopicConfig
from headrace.controller import controller, controller_epoch
from headrace.controller.candidate import ControllerCandidate
from headrace.controller.decisions import elections, isr_changes
from headrace.controller.managers import leader_manager
from headrace.errors import ErrorCode, KafkaError, OutOfOrderSequence
from headrace.limits import INT32_MAX
from headrace.log.producers.producer_state import Producers
from headrace.log.producers.refused_sequences import RefusedSequences
from headrace.log.recovery import recovery
from headrace.metastore.store import ANY_VERSION, Op, Set
from headrace.replication import isr
from headrace.replication.partition_state import PartitionState
from headrace.replication.replica_offsets import UNKNOWN_OFFSET, Follower
from tests.simulation import plan as kinds
from tests.simulation.mutant import Mutant
from tests.simulation.network import Weather
from tests.simulation.plan import Plan


def ack_before_isr(patch: pytest.MonkeyPatch) -> None:
    pending = DurableAppends.pending

    def answered_at_once(self, *arguments, **more):  # type: ignore[no-untyped-def]
        pending(self, *arguments, **more)

    def answered_plainly(*arguments):  # type: ignore[no-untyped-def]
        answer = append_plainly(*arguments)
        return answer.frame if isinstance(answer, Uncommitted) else answer

    patch.setattr(DurableAppends, "pending", answered_at_once)
    patch.setattr(dispatch, "append_plainly", answered_plainly)


def truncate_to_high_watermark(patch: pytest.MonkeyPatch) -> None:
    follow = replica_fetcher.ReplicaFetcher.follow

    def follow_and_truncate(self: replica_fetcher.ReplicaFetcher, partition: Partition) -> None:
        if partition.log.log_end_offset > partition.high_watermark:
            follower_log.truncate(partition, partition.high_watermark, self._services.now_ms())
        follow(self, partition)

    patch.setattr(replica_fetcher.ReplicaFetcher, "follow", follow_and_truncate)
    for reader in (follower_fetch, fetch):
        patch.setattr(reader, "diverging_epoch_of", lambda partition, wanted: None)


def serve_above_high_watermark(patch: pytest.MonkeyPatch) -> None:
    read = fetch.Fetch._read_partition

    def read_to_the_end(self, partition, *arguments):  # type: ignore[no-untyped-def]
        state, committed = partition.state, partition.state.high_watermark
        if self._follower is None:
            state.high_watermark = partition.log.log_end_offset
        try:
            return read(self, partition, *arguments)
        finally:
            if self._follower is None:
                state.high_watermark = committed

    patch.setattr(fetch.Fetch, "_read_partition", read_to_the_end)


def shrink_without_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(isr.PendingShrink, "maximal", property(lambda self: self.isr - self.leaving))


def zombie_controller(patch: pytest.MonkeyPatch) -> None:
    async def write_anyway(self: controller_epoch.ControllerEpoch, ops: list[Op]) -> list[object]:
        blind = [op._replace(version=ANY_VERSION) if isinstance(op, Set) else op for op in ops]
        return await self.store.multi(blind)  # type: ignore[return-value]

    patch.setattr(controller_epoch.ControllerEpoch, "_multi", write_anyway)
    patch.setattr(ControllerCandidate, "_end_active", lambda self: None)
    patch.setattr(ControllerCandidate, "_on_session", lambda self, state: None)
    for check in ("_check", "_refusal"):
        patch.setattr(ControlPlane, check, lambda self, request: ErrorCode.NONE)


def isr_change_without_epochs(patch: pytest.MonkeyPatch) -> None:
    def granted(state, sender, change, controller_epoch):  # type: ignore[no-untyped-def]
        isr = tuple(member.id for member in change.isr)
        changed = state.leadership[change.partition]._replace(isr=isr)
        return isr_changes.Judgement(ErrorCode.NONE, changed, is_changed=True)

    patch.setattr(leader_manager, "judge", granted)
    patch.setattr(controller, "has_current_epoch", lambda *arguments: True)


def unclean_restart_in_isr(patch: pytest.MonkeyPatch) -> None:
    def trusted(state, live, order, eligible):  # type: ignore[no-untyped-def]
        return tuple(broker for broker in state.isr if broker in live)

    patch.setattr(elections, "_trusted", trusted)


def no_duplicate_detection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Producers, "check", lambda self, *arguments, **more: None)


def unknown_is_duplicate(patch: pytest.MonkeyPatch) -> None:
    refusals_are_forgotten(patch)
    kept_batch = Producers._duplicate

    def taken_for_written(self, entry, first: int, last: int):  # type: ignore[no-untyped-def]
        try:
            return kept_batch(self, entry, first, last)
        except OutOfOrderSequence:
            if entry.batches and (entry.batches[0].first_sequence - 1 - last) & INT32_MAX <= INT32_MAX // 2:
                raise KafkaError("a batch from before", ErrorCode.DUPLICATE_SEQUENCE_NUMBER) from None
            raise

    patch.setattr(Producers, "_duplicate", taken_for_written)


def refusals_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RefusedSequences, "note", lambda self, *arguments: None)


def old_formats_diverge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(followed, "comparison_start", lambda *arguments: None)


def blind_truncation(patch: pytest.MonkeyPatch) -> None:
    follow = replica_fetcher.ReplicaFetcher.follow

    def follow_and_truncate(self: replica_fetcher.ReplicaFetcher, partition: Partition) -> None:
        log = partition.log
        if log.leader_epochs.latest < 0 and log.log_end_offset > partition.high_watermark:
            follower_log.truncate(partition, partition.high_watermark, self._services.now_ms())
        follow(self, partition)

    patch.setattr(replica_fetcher.ReplicaFetcher, "follow", follow_and_truncate)


def wait_for_the_ineligible(patch: pytest.MonkeyPatch) -> None:
    def is_about_to_join(self: PartitionState, follower: Follower, now_ms: int) -> bool:
        return follower.log_end_offset != UNKNOWN_OFFSET and follower.is_caught_up(
            self.log_end_offset, now_ms, self.lag_max_ms
        )

    patch.setattr(PartitionState, "_is_about_to_join", is_about_to_join)


def trust_what_is_older_than_the_state(patch: pytest.MonkeyPatch) -> None:
    judged = elections._trusted

    def trusted(state, live, order, eligible):  # type: ignore[no-untyped-def]
        known = {
            number: broker._replace(is_clean=broker.is_clean or broker.epoch <= state.mzxid)
            for number, broker in live.items()
        }
        return judged(state, known, order, eligible)

    patch.setattr(elections, "_trusted", trusted)


def nobody_is_eligible(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elections, "still_eligible", lambda *_, **__: ())


def eligible_for_ever(patch: pytest.MonkeyPatch) -> None:
    def eligible(state, leader, isr, *, replicas, **_):  # type: ignore[no-untyped-def]
        return tuple(each for each in replicas if each in {*state.eligible, *state.isr} and each not in isr)

    for module in (elections, isr_changes):
        patch.setattr(module, "eligible_after", eligible)
    patch.setattr(elections, "still_eligible", lambda state, **_: state.eligible)


def lost_tail_of_a_segment(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "GAP_IN_SEGMENT_MAX", 0)


def empty_log_without_epochs(patch: pytest.MonkeyPatch) -> None:
    def end_of_epoch(self: Partition, epoch: int) -> tuple[int, int]:
        if epoch > self.state.leader_epoch:
            return -1, -1
        if epoch == self.state.leader_epoch and self.state.is_leader:
            return epoch, self.log.log_end_offset
        latest = self.log.leader_epochs.latest
        return self.log.leader_epochs.end_offset_for(min(epoch, latest), self.log.log_end_offset)

    patch.setattr(Partition, "end_of_epoch", end_of_epoch)


def _with_configs(patch: pytest.MonkeyPatch, name: str, value: Callable[[TopicConfig], object]) -> None:
    """Has every topic's configs say something else, after what follows from them was set."""
    made = TopicConfig.__post_init__

    def otherwise(self: TopicConfig) -> None:
        made(self)
        object.__setattr__(self, name, value(self))

    patch.setattr(TopicConfig, "__post_init__", otherwise)


def reliable_without_flush(patch: pytest.MonkeyPatch) -> None:
    _with_configs(patch, "flush_count", lambda config: config.flush_messages)


def reliable_as_asked(patch: pytest.MonkeyPatch) -> None:
    _with_configs(patch, "reliable", lambda _: False)


LOSSES = frozenset({"lost", "vanished", "conflict", "diverged", "refused", "unordered"})
_ROUGH = Plan(duration_ms=12_000, gap_ms=700, min_insync_replicas=1, failures_max=2)
_RELIABLE = kinds.reliable(_ROUGH._replace(faults=(kinds.CRASH, kinds.CUT)))
_DAMAGED = Plan(duration_ms=4_000, producers=(), readers=0, pipelines=2, damage=0.2)

MUTANTS = (
    Mutant(
        "ack before ISR",
        ack_before_isr,
        _ROUGH._replace(faults=(kinds.CRASH, kinds.CUT, kinds.PAUSE)),
        LOSSES,
        first_seed=3,
    ),
    Mutant(
        "truncate to HW",
        truncate_to_high_watermark,
        _ROUGH._replace(faults=(kinds.CRASH, kinds.ELECT, kinds.STOP), weather=Weather(loss=0.05), gap_ms=400),
        LOSSES,
        first_seed=7,
    ),
    Mutant(
        "serve above HW",
        serve_above_high_watermark,
        _ROUGH._replace(faults=(kinds.CRASH, kinds.CUT, kinds.PAUSE)),
        LOSSES | {"watermark"},
        first_seed=3,
    ),
    Mutant(
        "shrink without check",
        shrink_without_check,
        _ROUGH._replace(faults=(kinds.CUT, kinds.ISOLATE, kinds.CUT_ONE_WAY)),
        LOSSES,
    ),
    Mutant(
        "ISR change without epochs",
        isr_change_without_epochs,
        _ROUGH._replace(faults=(kinds.PAUSE, kinds.STOP, kinds.CUT), gap_ms=500),
        LOSSES | {"two leaders"},
    ),
    Mutant(
        "zombie controller",
        zombie_controller,
        _ROUGH._replace(faults=(kinds.ISOLATE, kinds.SESSION, kinds.PAUSE)),
        LOSSES | {"two leaders"},
        first_seed=23,
    ),
    Mutant(
        "unclean restart in ISR",
        unclean_restart_in_isr,
        _ROUGH._replace(faults=(kinds.POWER,), min_insync_replicas=2),
        LOSSES,
    ),
    Mutant("unknown is duplicate", unknown_is_duplicate, _DAMAGED, frozenset({"lost"})),
    Mutant("refusals are forgotten", refusals_are_forgotten, _DAMAGED, frozenset({"unordered"})),
    Mutant(
        "old formats diverge",
        old_formats_diverge,
        _ROUGH._replace(faults=(kinds.CRASH, kinds.CUT)).with_format("0.10.2"),
        LOSSES,
    ),
    Mutant(
        "blind truncation",
        blind_truncation,
        _ROUGH._replace(
            faults=(kinds.CRASH, kinds.ELECT, kinds.STOP), weather=Weather(loss=0.05), gap_ms=400
        ).with_format("0.10.2"),
        LOSSES,
        first_seed=27,
    ),
    Mutant(
        "no duplicate detection", no_duplicate_detection, _ROUGH._replace(faults=(kinds.CUT,)), frozenset({"duplicate"})
    ),
    Mutant(
        "wait for the ineligible",
        wait_for_the_ineligible,
        kinds.gentle(Plan(faults=(kinds.ROLL,), gap_ms=500)),
        frozenset({"stalled"}),
    ),
    Mutant(
        "trust by age of state",
        trust_what_is_older_than_the_state,
        _ROUGH._replace(faults=(kinds.CONTROLLER, kinds.POWER), min_insync_replicas=2),
        LOSSES,
    ),
    Mutant(
        "nobody is eligible",
        nobody_is_eligible,
        _ROUGH._replace(faults=(kinds.POWER, kinds.CUT), replicas=2, min_insync_replicas=2, failures_max=1, gap_ms=500),
        LOSSES,
        first_seed=18,
    ),
    Mutant(
        "eligible for ever",
        eligible_for_ever,
        _ROUGH._replace(faults=(kinds.CRASH, kinds.CUT), min_insync_replicas=2, gap_ms=500),
        LOSSES,
    ),
    Mutant("reliable without flush", reliable_without_flush, _RELIABLE, LOSSES),
    Mutant("reliable as asked", reliable_as_asked, _RELIABLE, LOSSES, first_seed=2),
    Mutant(
        "lost tail of a segment",
        lost_tail_of_a_segment,
        _ROUGH._replace(
            faults=(kinds.POWER, kinds.SLOW_DISK),
            min_insync_replicas=2,
            gap_ms=500,
            topic_settings={"segment.bytes": "600"},
        ),
        LOSSES,
        first_seed=3,
    ),
    Mutant(
        "empty log without epochs",
        empty_log_without_epochs,
        Plan(duration_ms=4_000, gap_ms=500, producers=(), checks_positions=True, faults=(kinds.CRASH, kinds.STOP)),
        frozenset({"reset"}),
    ),
)
