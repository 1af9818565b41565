"""The ISR states of a partition that this broker leads, as a closed set of immutable values.

    CommittedIsr ──propose──▶ PendingExpand(joining) ──▶ CommittedIsr      the controller's answer, or a newer
                 ──propose──▶ PendingShrink(leaving) ──▶ CommittedIsr      LeaderAndIsr, ends a pending state

While a change is pending, there are two views of the ISR:

    isr      the ISR that the controller is known to have; must not be smaller than min.insync.replicas
    maximal  every replica that may be in the controller's ISR by now; the high watermark waits for these

So a record counts as committed only once every replica that could be elected has it.
Source: Kafka's `PartitionState` (KIP-497).
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from headrace.types import BrokerId


class CommittedIsr(NamedTuple):
    """No change is pending."""

    isr: frozenset[BrokerId]

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """All replicas that may be in the controller's ISR."""
        return self.isr

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The ISR that the controller was asked for."""
        return self.isr


class PendingExpand(NamedTuple):
    """The controller was asked to add `joining` to the ISR, and may have done so."""

    isr: frozenset[BrokerId]
    joining: BrokerId

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Includes the joining replica, for which the high watermark waits from now on."""
        return self.isr | {self.joining}

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The ISR that the controller was asked for."""
        return self.isr | {self.joining}


class PendingShrink(NamedTuple):
    """The controller was asked to remove `leaving` from the ISR. They count until it confirms."""

    isr: frozenset[BrokerId]
    leaving: frozenset[BrokerId]

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Includes the leaving replicas."""
        return self.isr

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The ISR that the controller was asked for."""
        return self.isr - self.leaving


IsrState = CommittedIsr | PendingExpand | PendingShrink


def committed(isr: Iterable[BrokerId]) -> CommittedIsr:
    """The state for an ISR that the controller sent. Partitions with the same ISR share it."""
    return _shared(frozenset(isr))


@lru_cache(maxsize=4096)
def _shared(isr: frozenset[BrokerId]) -> CommittedIsr:
    return CommittedIsr(isr)
