"""Differences between headrace and Apache Kafka that are meant, each with its reason."""

from typing import NamedTuple

from tests.differential.answers import Plain


class Difference(NamedTuple):
    """A field of an answer that differs."""

    line: int
    request: str
    field: str
    ours: Plain
    theirs: Plain


class Differs(NamedTuple):
    """A deliberate difference: the field, without list positions ("Metadata.topics[].is_internal"), and why.

    With "*" before it, the end of a field. Only if the values are these, where they are given; `at` is a part of the
    request's text.
    """

    field: str
    reason: str
    ours: str | None = None
    theirs: str | None = None
    at: str = ""

    def matches(self, found: Difference) -> bool:
        """Whether a difference is this one; a field stands for all below it."""
        return (
            (
                found.field.startswith((f"{self.field}.", f"{self.field}["))
                or found.field == self.field
                or (self.field[0] == "*" and found.field.endswith(self.field[1:]))
            )
            and self.ours in (None, found.ours)
            and self.theirs in (None, found.theirs)
            and self.at in found.request
        )


EVERYWHERE = (
    Differs("*.error_message", "headrace says in words what was wrong wherever it can", ours="text", theirs="None"),
    Differs(
        "Produce.responses[].partition_responses[].log_start_offset",
        "no client reads the log start offset of a refusal, except after UNKNOWN_PRODUCER_ID, which neither answers",
        ours="-1",
        theirs="0",
    ),
    *(
        Differs(
            f"*.configs[{name}]",
            "a setting that headrace does not have: tiered storage",
            ours="(absent)",
        )
        for name in (
            "local.retention.bytes",
            "local.retention.ms",
            "remote.copy.lag.bytes",
            "remote.copy.lag.ms",
            "remote.log.copy.disable",
            "remote.log.delete.on.disable",
            "remote.storage.enable",
        )
    ),
    *(
        Differs(
            f"*.configs[{name}]",
            "a setting of headrace's own, or one that Apache Kafka 3.9 still had",
            theirs="(absent)",
        )
        for name in (
            "headrace.flush.acks",
            "headrace.kafka07.enable",
            "headrace.lake",
            "headrace.preallocate.room",
            "headrace.reliable",
            "message.format.version",
            "message.timestamp.difference.max.ms",
        )
    ),
    *(
        Differs(
            f"{api}.configs[min.insync.replicas]",
            "Apache Kafka 4 writes a default for the whole cluster, for eligible leader replicas",
        )
        for api in ("DescribeConfigs.results[]", "CreateTopics.topics[]")
    ),
)
"""Deliberate differences that may occur in any scenario."""
