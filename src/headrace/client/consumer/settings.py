"""The settings of a consumer, and the checks of those that depend on each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.client.consumer.assignors.names import NAMES, RANGE, assignor_name
from headrace.client.consumer.fetching import FETCH_SIZES, READ_COMMITTED, READ_UNCOMMITTED, FetchSizes
from headrace.client.consumer.group_link import GroupTimes
from headrace.client.core.checked_settings import CheckedSettings
from headrace.client.operations.admin import EARLIEST, LATEST
from headrace.client.serializers.errors import RecordDeserializationError
from headrace.errors import InvalidConfig

CLASSIC_PROTOCOL, CONSUMER_PROTOCOL = "classic", "consumer"
RESETS = {"earliest": EARLIEST, "latest": LATEST}
ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


class ConsumerSettings(CheckedSettings, kind="consumer"):
    """The settings of a consumer, by any of their names. Raises InvalidConfig for a value out of range."""

    group_id: str | None = None
    group_instance_id: str | None = None
    client_rack: str | None = None
    """The rack of this consumer: the range assignor prefers replicas in it, and fetches come from them."""
    group_protocol: str = CLASSIC_PROTOCOL
    group_remote_assignor: str | None = None
    assignors: str | Sequence[str] = (RANGE,)
    times: GroupTimes = GroupTimes()
    auto_offset_reset: str = "latest"
    auto_commit: bool = True
    """False: only `commit` commits."""
    auto_commit_interval_ms: int = 5_000
    isolation_level: str = "read_uncommitted"
    max_poll_records: int = 500
    sizes: FetchSizes = FETCH_SIZES
    key_deserializer: Any = None
    value_deserializer: Any = None
    on_deserialization_error: Callable[[RecordDeserializationError], object] | None = None
    """Called with the error of a record that a deserializer refuses; the record is then left out."""
    interceptors: Any = None
    """Objects, or classes, with any of `on_consume`, `on_commit` and `close`; see `consumer.interceptors`."""
    metrics_push: bool = False

    def _check(self) -> None:
        super()._check()
        names = self.assignors.split(",") if isinstance(self.assignors, str) else self.assignors
        object.__setattr__(self, "assignors", tuple(assignor_name(name) for name in names))
        if self.auto_offset_reset not in (*RESETS, "none"):
            raise InvalidConfig(f"auto_offset_reset={self.auto_offset_reset!r}: expected earliest, latest or none")
        if self.isolation_level not in ISOLATION:
            raise InvalidConfig(f"isolation_level={self.isolation_level!r}: expected {' or '.join(ISOLATION)}")
        for name in self.assignors:
            if name not in NAMES:
                raise InvalidConfig(f"assignors: {name!r} is not one of {', '.join(NAMES)}")
        self._check_protocol()
        if self.group_id == "":
            raise InvalidConfig("group_id is empty: leave it out to consume without a group")
        if self.times.heartbeat_interval_ms >= self.times.session_timeout_ms:
            raise InvalidConfig(
                f"heartbeat_interval_ms={self.times.heartbeat_interval_ms} must be less than "
                f"session_timeout_ms={self.times.session_timeout_ms}; a third of it is usual"
            )

    def _check_protocol(self) -> None:
        if self.group_protocol not in (CLASSIC_PROTOCOL, CONSUMER_PROTOCOL):
            raise InvalidConfig(f"group_protocol={self.group_protocol!r}: expected classic or consumer")
        if self.group_protocol == CONSUMER_PROTOCOL and self.assignors != (RANGE,):
            raise InvalidConfig(
                f"partition_assignment_strategy={','.join(self.assignors)} has no effect with group_protocol=consumer, "
                "where the broker assigns: leave it out, or set group_remote_assignor to uniform or range"
            )
        if self.group_protocol == CLASSIC_PROTOCOL and self.group_remote_assignor is not None:
            raise InvalidConfig(
                f"group_remote_assignor={self.group_remote_assignor!r} needs group_protocol=consumer; with classic, "
                "set partition_assignment_strategy"
            )
