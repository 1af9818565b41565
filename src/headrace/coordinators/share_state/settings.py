"""The broker settings of the share coordinator."""

from typing import NamedTuple


class ShareStateSettings(NamedTuple):
    """The broker settings of the share coordinator. Times are in milliseconds."""

    updates_per_snapshot: int
    """Updates between two snapshots of a share partition."""
    prune_interval_ms: int
    cold_snapshot_interval_ms: int
    """A share partition whose last snapshot is older gets a new one, so that records before it can be deleted."""
