"""A member of a group, and the request that makes one. Both are values.

A static member (KIP-345) has an instance id, chosen by the client, which outlives its member id; a dynamic one
has only the member id that the coordinator gave it. Source: Kafka's `MemberMetadata`, `JoinGroupRequest`.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from headrace.protocol import messages as m

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""(assignor name, the member's subscription as that assignor reads it), the most wanted first."""


class Join(NamedTuple):
    """A JoinGroup request with its version's rules applied."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    must_know_member_id: bool  # KIP-394: a new dynamic member is first told its id
    can_skip_assignment: bool

    @classmethod
    def from_request(cls, request: m.JoinGroupRequest, version: int, client_id: str, client_host: str) -> Join:
        """`client_host` as Java prints an address: with a slash before it."""
        return cls(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            client_id,
            client_host,
            request.session_timeout_ms,
            # Version 0 has no rebalance time-out: its session time-out was both.
            request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
            request.protocol_type,
            tuple((each.name, bytes(each.metadata)) for each in request.protocols),
            version >= 4 and request.group_instance_id is None,
            version >= 9,
        )


class Member(NamedTuple):
    """One member as the group keeps it and `__consumer_offsets` stores it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False  # has not been in a generation yet, so it cannot send heartbeats either

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def protocol_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.protocols)

    def metadata(self, protocol: str) -> bytes:
        """The subscription for that protocol; `KeyError` when the member does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(protocol)

    def vote(self, candidates: Container[str]) -> str:
        """The most wanted protocol among the candidates, which every member supports at least one of."""
        return next(name for name, _ in self.protocols if name in candidates)


def new_member(join: Join, member_id: str) -> Member:
    """The member that this request makes, under the id that the coordinator gave."""
    return Member(
        member_id,
        join.instance_id,
        join.client_id,
        join.client_host,
        join.session_timeout_ms,
        join.rebalance_timeout_ms,
        join.protocols,
        is_new=True,
    )
