"""Errors about the groups in which the sink keeps its state."""

from headrace.errors import ErrorCode, KafkaError


class SinkGroupError(KafkaError):
    """A group of the sink has no room, or has something that the sink did not write. Nothing was sent."""

    code = ErrorCode.INVALID_RECORD


def malformed(group_id: str, metadata: str) -> SinkGroupError:
    """The group has metadata that the sink does not write."""
    return SinkGroupError(
        f"group {group_id} has the metadata {metadata[:200]!r}, which the sink did not write, so it cannot be known "
        "which rows are there already. Find out which rows of the batch were written; then delete the group "
        f"(headrace group delete {group_id}): the batch is written as if for the first time"
    )


def too_large(group_id: str, producer_ids: int) -> SinkGroupError:
    """The brokers take no metadata of this length."""
    return SinkGroupError(
        f"group {group_id} has no room for the producer ids of all runs of the task, which are {producer_ids}. "
        "Find out why the task fails so often, raise offset.metadata.max.bytes of the brokers, and start the query "
        "again",
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    )
