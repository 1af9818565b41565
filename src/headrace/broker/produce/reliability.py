"""What a reliable topic (`headrace.reliable`) demands of a batch before it is appended.

The rest follows from the topic's settings, which the switch overrides (`config.topic`): the flush on every in-sync
replica before the acknowledgement, `min.insync.replicas`, no unclean election.
"""

from headrace.broker.partitions.partition import Partition
from headrace.broker.produce.checks import CheckedBatch
from headrace.broker.produce.formats import Checked
from headrace.config.topic import RELIABLE_REPLICAS_MIN
from headrace.errors import ErrorCode, InvalidRecord, KafkaError
from headrace.types import NO_PRODUCER


def check_reliable(partition: Partition, checked: Checked) -> None:
    """Raises INVALID_RECORD for a batch of a producer that is not idempotent, which could repeat it after a failure;
    NOT_ENOUGH_REPLICAS for a partition that has not the replicas to be reliable."""
    if not isinstance(checked, CheckedBatch) or checked.header.producer_id == NO_PRODUCER:
        raise InvalidRecord(
            f"topic {partition.key.topic} is reliable (headrace.reliable=true) and takes records of idempotent "
            f"producers only: set enable.idempotence=true in the producer"
        )
    replicas = len(partition.state.followers) + 1
    if replicas < RELIABLE_REPLICAS_MIN:
        raise KafkaError(
            f"{partition.key} has {replicas} replica, but its topic is reliable (headrace.reliable=true), which takes "
            f"{RELIABLE_REPLICAS_MIN} at least: add a replica, or set headrace.reliable=false",
            ErrorCode.NOT_ENOUGH_REPLICAS,
        )
