"""Members of a group, and the JoinGroup requests that create them. Both are immutable values.

A static member (KIP-345) has an instance id, chosen by the client, which outlives its member id. A dynamic member has
only the member id that the coordinator assigned. Source: Kafka's `MemberMetadata`, `JoinGroupRequest`.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from headrace.protocol import messages as m

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""(assignor name, the member's subscription in that assignor's format), the most preferred first."""


class Join(NamedTuple):
    """A JoinGroup request, after the rules of its version were applied."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    must_know_member_id: bool  # KIP-394: a new dynamic member first gets its id, and joins again with it
    can_skip_assignment: bool

    @classmethod
    def from_request(cls, request: m.JoinGroupRequest, version: int, client_id: str, client_host: str) -> Join:
        """`client_host` is as Java prints an address: with a leading slash."""
        return cls(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            client_id,
            client_host,
            request.session_timeout_ms,
            # Version 0 has no rebalance time-out; its session time-out was used for both.
            request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
            request.protocol_type,
            tuple((each.name, bytes(each.metadata)) for each in request.protocols),
            version >= 4 and request.group_instance_id is None,
            version >= 9,
        )


class Member(NamedTuple):
    """One member, as `__consumer_offsets` stores it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False  # not yet in a generation, so it sends no heartbeats

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def protocol_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.protocols)

    def metadata(self, protocol: str) -> bytes:
        """The subscription for that protocol. Raises `KeyError` if the member does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(protocol)

    def vote(self, candidates: Container[str]) -> str | None:
        """The protocol that the member prefers among the candidates; None if it supports none of them."""
        return next((name for name, _ in self.protocols if name in candidates), None)


def new_member(join: Join, member_id: str) -> Member:
    """The member that this request creates, with the member id that the coordinator assigned."""
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
