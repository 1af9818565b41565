"""The owner of a log's high watermark.

The replica's state owns the high watermark and moves it. The log reads it for retention, cleaning, checkpoints and the
last stable offset, and tells the owner about a truncation. Until a log has a replica, the log uses the checkpointed
high watermark.
"""

from typing import Protocol


class HighWatermarkOwner(Protocol):
    """Moves the high watermark of one log: `PartitionState`, or a stand-in."""

    high_watermark: int

    def on_truncated(self, log_start_offset: int, log_end_offset: int) -> None:
        """Note a truncation: the high watermark lies between these offsets (both inclusive) from now on."""


class StoredHighWatermark:
    """The high watermark of a log without a replica."""

    __slots__ = ("high_watermark",)

    def __init__(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark

    def on_truncated(self, log_start_offset: int, log_end_offset: int) -> None:
        """As `HighWatermarkOwner.on_truncated`."""
        self.high_watermark = max(log_start_offset, min(self.high_watermark, log_end_offset))
