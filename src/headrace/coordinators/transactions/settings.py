"""The broker settings of transactions."""

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """The broker settings of transactions. Times are in milliseconds."""

    max_timeout_ms: int
    id_expiration_ms: int
    expiration_check_interval_ms: int
    two_phase_commit_enable: bool
