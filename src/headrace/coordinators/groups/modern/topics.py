"""The topics of the cluster, as groups see them. The broker gives them; the state machine only reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from headrace.coordinators.groups.modern.metadata_hash import topic_hash


@dataclass(frozen=True)
class ModernTopic:
    """A topic that exists."""

    name: str
    topic_id: bytes  # 16 bytes
    racks: tuple[tuple[str, ...], ...]
    """By partition: the racks of its replicas, sorted, with a rack for each replica whose broker has one."""

    @property
    def partition_count(self) -> int:
        return len(self.racks)

    @cached_property
    def hash(self) -> int:
        """The topic's part of a group's metadata hash; computed once, since it reads every partition."""
        return topic_hash(self.name, self.topic_id, self.racks)


class Topics(Protocol):
    """The topics that exist now. `version` grows with each change of them, `newest_version` with each new topic."""

    @property
    def version(self) -> int: ...

    @property
    def newest_version(self) -> int: ...

    def by_name(self, name: str) -> ModernTopic | None: ...

    def by_id(self, topic_id: bytes) -> ModernTopic | None: ...

    def names(self) -> Collection[str]: ...


def existing(names: Collection[str], topics: Topics) -> list[ModernTopic]:
    """The topics of these names that exist. Looks each name up, or each topic, whichever are fewer."""
    known = topics.names()
    if len(names) > len(known):
        names = [each for each in known if each in names]
    return [topic for each in names if (topic := topics.by_name(each)) is not None]
