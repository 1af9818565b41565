"""Members of share groups, by client."""

from typing import Any, Protocol, runtime_checkable

from headrace.client.share.acquired_records import ShareRecord
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.conformance.programs import Machine, consumed
from tests.peers.share_consumers import JavaShareConsumers, Taken

ACCEPT, RELEASE, REJECT = "ACCEPT", "RELEASE", "REJECT"
GROUP_CONFIG = 32
POLL_MS = 200


class ShareMember(Protocol):
    """A member of a share group."""

    def poll(self) -> list[Taken]:
        """What arrived. All of it is acknowledged before the next poll."""

    def acknowledge(self, taken: Taken, how: str) -> None:
        """How to go on with a record of the last poll; only of a member that acknowledges explicitly."""

    def commit(self) -> None:
        """Send the acknowledgements, and wait until the broker took each; an implicit member accepts what it polled."""

    def close(self) -> None:
        """Leave the group."""


@runtime_checkable
class SharingClient(Protocol):
    """A client that has share groups."""

    def share(self, bootstrap: str, topic: str, group: str, is_explicit: bool) -> ShareMember:
        """A new member of a share group."""


def begin_at_the_first_record(bootstrap: str, group: str) -> None:
    """A share group begins at the end of a topic otherwise."""
    Setting = m.IncrementalAlterConfigsRequest.AlterableConfig
    setting = Setting(name="share.auto.offset.reset", value="earliest", config_operation=0)
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP_CONFIG, resource_name=group, configs=[setting]
    )
    with Asker(bootstrap) as asker:
        answer = asker.ask(m.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert [each.error_code for each in answer.responses] == [0], answer


class JavaShareMember:
    """A KafkaShareConsumer."""

    def __init__(self, java: JavaShareConsumers, topic: str, group: str, is_explicit: bool) -> None:
        self.java, self.name = java, f"{group}-{java.next_number()}"
        mode = "explicit" if is_explicit else "implicit"
        java(f"open {self.name} {group} {topic} share.acknowledgement.mode={mode}")

    def poll(self) -> list[Taken]:
        """What arrived."""
        return self.java.records(f"poll {self.name} {POLL_MS}")

    def acknowledge(self, taken: Taken, how: str) -> None:
        """With acknowledge."""
        self.java(f"ack {self.name} {taken.offset} {how}")

    def commit(self) -> None:
        """With commitSync."""
        assert self.java(f"commit {self.name}") in ("", "none")

    def close(self) -> None:
        """Leave the group."""
        self.java(f"close {self.name}")


class FranzShareMember:
    """franz-go's client with the option ShareGroup; it has no implicit mode that a commit ends."""

    def __init__(self, machine: Machine, bootstrap: str, topic: str, group: str) -> None:
        self.machine, self.consumer = machine, machine.new_name()
        machine.ask("share", consumer=self.consumer, bootstrap=bootstrap, topic=topic, group=group)

    def poll(self) -> list[Taken]:
        """With PollFetches."""
        lines = self.machine.ask("take", consumer=self.consumer, ms=POLL_MS)
        return [_taken(consumed(each).offset, consumed(each).message.value, each["deliveries"]) for each in lines]

    def acknowledge(self, taken: Taken, how: str) -> None:
        """With Record.Ack."""
        self.machine.ask("acknowledge", consumer=self.consumer, position=taken.offset, value=how)

    def commit(self) -> None:
        """With MarkAcks for what is not acknowledged yet, and FlushAcks."""
        self.machine.ask("commit_shared", consumer=self.consumer)

    def close(self) -> None:
        """Leave the group."""
        self.machine.ask("close", consumer=self.consumer)


class ConfluentShareMember:
    """confluent-kafka's ShareConsumer."""

    def __init__(self, bootstrap: str, topic: str, group: str, is_explicit: bool) -> None:
        from confluent_kafka import ShareConsumer

        mode = "explicit" if is_explicit else "implicit"
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group}
        self.consumer = ShareConsumer({**settings, "share.acknowledgement.mode": mode})
        self.consumer.subscribe([topic])
        self.topic = topic

    def poll(self) -> list[Taken]:
        """What arrived."""
        read = list(self.consumer.poll(POLL_MS / 1_000))
        assert [each.error() for each in read if each.error()] == []
        return [_taken(each.offset(), each.value(), each.delivery_count()) for each in read]

    def acknowledge(self, taken: Taken, how: str) -> None:
        """With acknowledge_offset."""
        from confluent_kafka import AcknowledgeType

        self.consumer.acknowledge_offset(self.topic, 0, taken.offset, AcknowledgeType[how])

    def commit(self) -> None:
        """With commit_sync."""
        assert set(self.consumer.commit_sync().values()) <= {None}

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()


class HeadraceShareMember:
    """headrace.client's ShareConsumer."""

    def __init__(self, bootstrap: str, topic: str, group: str, is_explicit: bool) -> None:
        from headrace.client.share.share_consumer import ShareConsumer

        mode = "explicit" if is_explicit else "implicit"
        self.consumer = ShareConsumer(bootstrap, group_id=group, share_acknowledgement_mode=mode)
        self.consumer.subscribe([topic])
        self.polled: dict[int, ShareRecord] = {}

    def poll(self) -> list[Taken]:
        """What arrived."""
        read = self.consumer.poll(POLL_MS)
        self.polled = {each.offset: each for each in read}
        return [_taken(each.offset, each.value, each.delivery_count) for each in read]

    def acknowledge(self, taken: Taken, how: str) -> None:
        """With acknowledge."""
        from headrace.client.share.acknowledgements import AcknowledgeType

        self.consumer.acknowledge(self.polled[taken.offset], AcknowledgeType[how])

    def commit(self) -> None:
        """With commit."""
        assert set(self.consumer.commit().values()) <= {None}

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()


def _taken(offset: int | None, value: bytes | str | None, delivery_count: int | None) -> Taken:
    assert offset is not None
    assert isinstance(value, bytes)
    assert delivery_count is not None
    return Taken(offset, value.decode(), delivery_count)
