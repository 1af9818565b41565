"""The in-sync replicas of a partition that this broker leads, as a closed set of immutable states.

    CommittedIsr ──propose──▶ PendingExpand(joining) ──▶ CommittedIsr      the controller's answer, or a newer
                 ──propose──▶ PendingShrink(leaving) ──▶ CommittedIsr      LeaderAndIsr, ends a pending state

Two questions have two answers while a change is pending:

    isr      what the controller is known to have: who must be there for min.insync.replicas
    maximal  what it may have by now: whom the high watermark waits for

so that a record is never called committed before every replica has it that could be elected.
Source: Kafka's `PartitionState` (KIP-497).
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.types import BrokerId


class CommittedIsr(NamedTuple):
    """No change is on its way."""

    isr: frozenset[BrokerId]

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Everyone who may be in the ISR."""
        return self.isr

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The ISR that the controller was asked for."""
        return self.isr


class PendingExpand(NamedTuple):
    """The controller was asked to take `joining` in; it may have done so."""

    isr: frozenset[BrokerId]
    joining: BrokerId

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Includes the one who joins: the high watermark waits for it from now on."""
        return self.isr | {self.joining}

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The ISR that the controller was asked for."""
        return self.isr | {self.joining}


class PendingShrink(NamedTuple):
    """The controller was asked to take `leaving` out; until it says so they count."""

    isr: frozenset[BrokerId]
    leaving: frozenset[BrokerId]

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Includes those who leave."""
        return self.isr

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The ISR that the controller was asked for."""
        return self.isr - self.leaving


IsrState = CommittedIsr | PendingExpand | PendingShrink


def committed(isr: Iterable[BrokerId]) -> CommittedIsr:
    """The state as the controller told it."""
    return CommittedIsr(frozenset(isr))
