"""Consume, transform, produce: what every client does that has a consumer and a producer of its own for it."""

from collections.abc import Callable

from tests.conformance.model import Consumed, Member, TransactionalProducer, Transforming
from tests.eventually import collected


def transformed(
    member: Member,
    producer: TransactionalProducer,
    what: Transforming,
    commit: bool,
    send_offsets: Callable[[], None],
) -> list[Consumed]:
    """The records that a member read, and a transaction wrote to the target. Closes both."""
    try:
        read = collected(lambda _: member.poll(0.2), what.records)
        producer.begin()
        producer.send(what.target, [each.message for each in read])
        send_offsets()
        if commit:
            producer.commit()
        else:
            producer.abort()
        return read
    finally:
        producer.close()
        member.close()
