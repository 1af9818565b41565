"""The states of partitions in the controller's requests, each put together and encoded once for all brokers. Pure.

A new controller sends the state of every partition to every broker. So a state is a row: what it is made of, and its
bytes in the newest versions of the requests. The requests have sequences of rows where they have lists of structs. An
encoder takes the bytes of the rows; the structs are made where somebody reads them, as this process's own broker does,
and for the versions of older brokers.

    LeaderAndIsr      partition int32 | controller epoch int32 | leader int32 | leader epoch int32 | ISR
                      | partition epoch int32 | replicas | adding | removing | new int8 | recovery int8 | no tags int8
    UpdateMetadata    partition int32 | controller epoch int32 | leader int32 | leader epoch int32 | ISR
                      | partition epoch int32 | replicas | offline replicas | no tags int8
    array             its length + 1, one byte below 128 | broker int32, ...
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, ClassVar, NamedTuple, TypeVar, overload

from headrace.metadata.model import LEADER_DURING_DELETE, PartitionLeadership, Replicas
from headrace.protocol import messages as m
from headrace.types import BrokerId

LEADER_VERSIONS = range(6, 8)
"""The versions of LeaderAndIsr with these bytes of a partition."""
RECOVERY_FROM = 6
"""The first version of LeaderAndIsr that tells of a recovery."""
METADATA_VERSIONS = range(6, 9)
"""The versions of UpdateMetadata with these bytes of a partition."""

_COUNT_MAX = 126  # brokers in an array whose length takes one byte

T = TypeVar("T")


class LeaderState(NamedTuple):
    """The state for LeaderAndIsr."""

    octets: bytes | None
    """In `LEADER_VERSIONS`; None if an array is too long."""
    number: int
    leadership: PartitionLeadership
    replicas: Replicas
    is_new: bool


class MetadataState(NamedTuple):
    """The state for UpdateMetadata."""

    octets: bytes | None
    """In `METADATA_VERSIONS`; None if an array is too long."""
    number: int
    leadership: PartitionLeadership
    replicas: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]
    is_deleting: bool


def leader_state(number: int, leadership: PartitionLeadership, replicas: Replicas, *, is_new: bool) -> LeaderState:
    """The state of one partition for LeaderAndIsr."""
    leader, leader_epoch, isr, controller_epoch, partition_epoch, _, is_recovering, _ = leadership
    order, adding, removing = replicas
    pack = _leader_packer(len(isr), len(order), len(adding), len(removing))
    octets = pack and pack(
        *(number, controller_epoch, leader, leader_epoch, len(isr) + 1, *isr, partition_epoch),
        *(len(order) + 1, *order, len(adding) + 1, *adding, len(removing) + 1, *removing),
        *(is_new, is_recovering, 0),
    )
    return LeaderState(octets, number, leadership, replicas, is_new)


def metadata_state(
    number: int,
    leadership: PartitionLeadership,
    replicas: tuple[BrokerId, ...],
    offline: tuple[BrokerId, ...],
    *,
    is_deleting: bool,
) -> MetadataState:
    """The state of one partition for UpdateMetadata. A topic that is being deleted has the leader
    `LEADER_DURING_DELETE`."""
    leader, leader_epoch, isr, controller_epoch, partition_epoch, *_ = leadership
    pack = _metadata_packer(len(isr), len(replicas), len(offline))
    octets = pack and pack(
        *(number, controller_epoch, LEADER_DURING_DELETE if is_deleting else leader, leader_epoch),
        *(len(isr) + 1, *isr, partition_epoch, len(replicas) + 1, *replicas, len(offline) + 1, *offline, 0),
    )
    return MetadataState(octets, number, leadership, replicas, offline, is_deleting)


@lru_cache(maxsize=1000)
def _leader_packer(isr: int, replicas: int, adding: int, removing: int) -> Callable[..., bytes] | None:
    if max(isr, replicas, adding, removing) > _COUNT_MAX:
        return None
    return Struct(f">4iB{isr}iiB{replicas}iB{adding}iB{removing}ibbB").pack


@lru_cache(maxsize=1000)
def _metadata_packer(isr: int, replicas: int, offline: int) -> Callable[..., bytes] | None:
    if max(isr, replicas, offline) > _COUNT_MAX:
        return None
    return Struct(f">4iB{isr}iiB{replicas}iB{offline}iB").pack


def in_parts(states: Mapping[str, Mapping[int, T]], size: int) -> Iterator[dict[str, Mapping[int, T]]]:
    """The states by topic, in parts of at most `size` partitions. Topics are not split, unless one has more."""
    part: dict[str, Mapping[int, T]] = {}
    count = 0
    for topic, rows in states.items():
        if part and count + len(rows) > size:
            yield part
            part, count = {}, 0
        if len(rows) <= size:
            part[topic] = rows
            count += len(rows)
            continue
        left = list(rows.items())
        for start in range(0, len(left), size):
            yield {topic: dict(left[start : start + size])}
    if part:
        yield part


class _States(Sequence[T]):
    """Rows of one topic, in the place of a list of structs."""

    __slots__ = ("_rows",)
    VERSIONS: ClassVar[range]

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = rows

    def encoded(self, version: int) -> bytes | None:
        """The bytes of all elements; None if they have to be encoded one by one. See `protocol.codec.encoding`."""
        if version not in self.VERSIONS:
            return None
        try:
            return b"".join([row.octets for row in self._rows])
        except TypeError:  # one has none
            return None

    def structs(self, version: int) -> Iterator[T]:
        """The elements as this version can carry them."""
        return iter(self)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[T]:
        return map(self._struct, self._rows)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        rows = self._rows[index]
        return list(map(self._struct, rows)) if isinstance(index, slice) else self._struct(rows)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | _States) else NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # as that of a list

    def __repr__(self) -> str:
        return repr(list(self))

    @staticmethod
    def _struct(row: Any) -> T:
        raise NotImplementedError


class LeaderStates(_States["m.LeaderAndIsrRequest.LeaderAndIsrPartitionState"]):
    """States of one topic for LeaderAndIsr."""

    __slots__ = ()
    VERSIONS = LEADER_VERSIONS

    def structs(self, version: int) -> Iterator["m.LeaderAndIsrRequest.LeaderAndIsrPartitionState"]:
        """Before version 6, without the recovery from an unclean election, as Apache Kafka's controller sends them to
        brokers of 3.1 and older (KIP-704): the field must not be set there."""
        for state in self:
            if version < RECOVERY_FROM:
                state.leader_recovery_state = 0
            yield state

    @staticmethod
    def _struct(row: LeaderState) -> "m.LeaderAndIsrRequest.LeaderAndIsrPartitionState":
        leadership, replicas = row.leadership, row.replicas
        return m.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=row.number,
            controller_epoch=leadership.controller_epoch,
            leader=leadership.leader,
            leader_epoch=leadership.leader_epoch,
            isr=list(leadership.isr),
            partition_epoch=leadership.partition_epoch,
            replicas=list(replicas.replicas),
            adding_replicas=list(replicas.adding),
            removing_replicas=list(replicas.removing),
            is_new=row.is_new,
            leader_recovery_state=int(leadership.is_recovering),
        )


class MetadataStates(_States["m.UpdateMetadataRequest.UpdateMetadataPartitionState"]):
    """States of one topic for UpdateMetadata."""

    __slots__ = ()
    VERSIONS = METADATA_VERSIONS

    @staticmethod
    def _struct(row: MetadataState) -> "m.UpdateMetadataRequest.UpdateMetadataPartitionState":
        leadership = row.leadership
        return m.UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=row.number,
            controller_epoch=leadership.controller_epoch,
            leader=LEADER_DURING_DELETE if row.is_deleting else leadership.leader,
            leader_epoch=leadership.leader_epoch,
            isr=list(leadership.isr),
            zk_version=leadership.partition_epoch,
            replicas=list(row.replicas),
            offline_replicas=list(row.offline),
        )
