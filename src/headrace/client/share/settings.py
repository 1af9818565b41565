"""The settings of a share consumer."""

from __future__ import annotations

from headrace.client.consumer.fetching import FETCH_SIZES, FetchSizes
from headrace.client.core.checked_settings import CheckedSettings
from headrace.errors import InvalidConfig

IMPLICIT, EXPLICIT = "implicit", "explicit"
ACQUIRE_MODES = {"batch_optimized": 0, "record_limit": 1}


class ShareConsumerSettings(CheckedSettings, kind="share_consumer"):
    """The settings of a share consumer, by any of their names. Raises InvalidConfig for a value out of range."""

    group_id: str | None = None
    client_rack: str | None = None
    acknowledgement_mode: str = IMPLICIT
    acquire_mode: str = "batch_optimized"
    max_poll_records: int = 500
    sizes: FetchSizes = FETCH_SIZES

    def _check(self) -> None:
        super()._check()
        if self.group_id == "":
            raise InvalidConfig("group_id is empty: give the share group's name")
        if self.acknowledgement_mode not in (IMPLICIT, EXPLICIT):
            raise InvalidConfig(
                f"share_acknowledgement_mode={self.acknowledgement_mode!r}: expected implicit or explicit"
            )
        if self.acquire_mode not in ACQUIRE_MODES:
            raise InvalidConfig(f"share_acquire_mode={self.acquire_mode!r}: expected {' or '.join(ACQUIRE_MODES)}")
