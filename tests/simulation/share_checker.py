"""What is wrong with the deliveries of a share group (KIP-932). Pure: a history in, findings out.

    again           a record came after an acknowledgement that finished it had been answered
    deliveries      a record came more often than the limit of deliveries
    count           a record came with a delivery count that is not above that of a release that had been answered
    two holders     a member's acknowledgement was taken, though another member had been given the record meanwhile
    undelivered     the start offset passed a record that nobody finished, and that did not come as often as allowed
    undrained       long after everything was healed, the start offset of a share partition is not at the end

A broker that was replaced as leader and does not know it may deliver what is finished elsewhere; what such brokers
deliver counts only against the limit. Who holds what is in the leader's memory, so the next leader delivers it to
others at once: a holder is one whose acknowledgement is taken.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.simulation.finding import Finding, time
from tests.simulation.history import Delivery, History, Outcome, ShareAcknowledgement
from tests.simulation.plan import SHARE_DELIVERIES_MAX, SHARE_LOCK_MS

ACCEPT, RELEASE, REJECT = 1, 2, 3
_FEW = 2
"""Deliveries that are so far from the limit that no lost answers explain that the record is finished."""

Record = tuple[int, int]


def check_shares(history: History) -> list[Finding]:
    """Everything that is wrong."""
    deliveries: defaultdict[Record, list[Delivery]] = defaultdict(list)
    for each in history.deliveries:
        deliveries[each.partition, each.offset].append(each)
    acknowledgements: defaultdict[Record, list[ShareAcknowledgement]] = defaultdict(list)
    for noted in history.share_acknowledgements:
        acknowledgements[noted.partition, noted.offset].append(noted)
    found = [Finding("undrained", -1, text) for text in history.undrained]
    for record, some in deliveries.items():
        found += _deliveries(some)
        found += _after_acknowledgements(some, acknowledgements[record])
        found += _two_holders(some, acknowledgements[record])
    return [*found, *_undelivered(history, deliveries, acknowledgements)]


def _deliveries(deliveries: list[Delivery]) -> Iterator[Finding]:
    for each in deliveries:
        if not 1 <= each.delivery_count <= SHARE_DELIVERIES_MAX:
            yield Finding("deliveries", each.partition, f"{_told(each)}, and {SHARE_DELIVERIES_MAX} times are allowed")


def _after_acknowledgements(
    deliveries: list[Delivery], acknowledgements: list[ShareAcknowledgement]
) -> Iterator[Finding]:
    for done in acknowledgements:
        if done.outcome is not Outcome.ACKNOWLEDGED:
            continue
        is_final = done.kind != RELEASE or done.delivery_count >= SHARE_DELIVERIES_MAX
        for each in deliveries:
            if not each.is_current or each.sent_us <= done.ended_us:
                continue
            if is_final:
                yield Finding("again", each.partition, f"{_told(each)}, but {_done(done)}")
            elif each.delivery_count <= done.delivery_count:
                yield Finding("count", each.partition, f"{_told(each)}, but {_done(done)}")


def _two_holders(deliveries: list[Delivery], acknowledgements: list[ShareAcknowledgement]) -> Iterator[Finding]:
    """An acknowledgement proves that its member has held the record since it got it. One of a record that is finished
    already proves nothing: such ones are answered without a look."""
    for done in acknowledgements:
        if done.outcome is not Outcome.ACKNOWLEDGED:
            continue
        for each in deliveries:
            is_meanwhile = done.got_us < each.sent_us and each.at_us < done.sent_us
            if each.member == done.member or not each.is_current or not is_meanwhile or each.delivery_count > _FEW:
                continue
            is_locked = done.ended_us < each.sent_us + SHARE_LOCK_MS * 1000
            may_be_finished = any(
                other is not done and other.sent_us <= done.ended_us and other.member != done.member
                for other in acknowledgements
            )
            if is_locked and not may_be_finished:
                yield Finding("two holders", each.partition, f"{_told(each)}, but {_done(done)}")


def _undelivered(
    history: History,
    deliveries: dict[Record, list[Delivery]],
    acknowledgements: dict[Record, list[ShareAcknowledgement]],
) -> Iterator[Finding]:
    unanswered = Counter(each.partition for each in history.unanswered_fetches)
    sent = {each.value for each in history.sent if each.acks == -1 and each.outcome is Outcome.ACKNOWLEDGED}
    for replica in history.replicas:
        end = history.share_ends.get(replica.partition)
        if not replica.is_leader or end is None:
            continue
        for stored in replica.records:
            record = (replica.partition, stored.offset)
            if stored.offset >= end or stored.value not in sent:
                continue
            is_finished = any(
                each.kind != RELEASE and each.outcome is not Outcome.REFUSED for each in acknowledgements[record]
            )
            count = max((each.delivery_count for each in deliveries.get(record, ())), default=0)
            if not is_finished and count + unanswered[replica.partition] < SHARE_DELIVERIES_MAX:
                text = f"{stored.value} at {stored.offset} came {count} times at most, and nobody finished it"
                yield Finding("undelivered", replica.partition, text)


def _told(delivery: Delivery) -> str:
    return (
        f"{delivery.offset} came to {delivery.member} at {time(delivery.at_us)} from broker {delivery.broker}, for "
        f"time {delivery.delivery_count}"
    )


def _done(done: ShareAcknowledgement) -> str:
    what = {ACCEPT: "accepted", RELEASE: "released", REJECT: "rejected"}[done.kind]
    return (
        f"{done.member}, who got it at {time(done.got_us)} for time {done.delivery_count}, {what} it at "
        f"broker {done.broker} from {time(done.sent_us)} to {time(done.ended_us)}"
    )
