"""The lists of replicas that a replication quota applies to: `PARTITION:BROKER,...`, or `*` for all of a topic.

Source: Kafka's ThrottledReplicaListValidator.
"""

from collections.abc import Iterable

ALL = "*"


def check_entry(entry: str) -> None:
    """Raises ValueError if the text is not an entry of such a list."""
    partition, colon, broker = entry.partition(":")
    if entry != ALL and not (colon and partition.isdigit() and (broker.isdigit() or broker == ALL)):
        raise ValueError("is not valid: use * or a list of PARTITION:BROKER")


def names(entries: Iterable[str], partition: int, broker: int) -> bool:
    """Whether a partition's replica on a broker is in the list."""
    return any(each in (ALL, f"{partition}:{broker}", f"{partition}:{ALL}") for each in entries)
