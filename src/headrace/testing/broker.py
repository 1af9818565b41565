"""`Broker`: a broker for tests that starts quickly and removes everything at its end.

    Broker() ──start──▶ answers at `bootstrap` ──stop──▶ stopped, `data` stays ──close──▶ a temporary `data` is gone
                             ▲                     │
                             └───────restart───────┘   same address, same data

`TEST_SETTINGS` has the differences from `headrace serve`; a caller's settings override it. Syncs are real. If they cost
too much, point TMPDIR at a file system in memory (`TMPDIR=/dev/shm pytest`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from headrace.testing.host import BrokerFailed, Host

if TYPE_CHECKING:
    from typing import Self

    from headrace.client.core.settings import ClientSettings
    from headrace.testing.security import Security, SecurityFiles

SettingValue = str | int | float | bool

TEST_SETTINGS: Mapping[str, SettingValue] = {
    "group.initial.rebalance.delay.ms": 0,  # the first member of a group does not wait for others
    "group.min.session.timeout.ms": 100,  # a test that loses a member need not wait six seconds for it
    "offsets.topic.num.partitions": 1,
    "log.retention.check.interval.ms": 86_400_000,  # records with times of years ago stay
    "log.segment.delete.delay.ms": 1_000,
}
_DATA_SETTINGS = ("log.dirs", "log.dir")


class Broker:
    """A broker for one test.

    data         the directory of its log; by default a temporary one, removed at the end
    settings     Kafka's names; an unknown name raises `InvalidConfig`, which suggests the nearest name
    port         on the loopback interface; 0 for any that is free
    subprocess   in a process of its own, with an interpreter of its own: slower to start, but `kill` works
    security     a protocol such as "SASL_SSL", or a `Security`: TLS, users and rules; see `client_options`
    """

    def __init__(
        self,
        *,
        data: Path | str | None = None,
        settings: Mapping[str, SettingValue] | None = None,
        port: int = 0,
        subprocess: bool = False,
        security: Security | str | None = None,
    ) -> None:
        self._properties = _checked(settings or {})
        self._security = _security_of(security)
        self._files: SecurityFiles | None = None
        self._private: TemporaryDirectory[str] | None = None
        self._given_data = None if data is None else Path(data)
        self._temporary: TemporaryDirectory[str] | None = None
        self._address = f"127.0.0.1:{port}"
        self._was_started = False
        self._subprocess = subprocess
        self._host: Host | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "running" if self.is_running else "stopped" if self._was_started else "not started"
        return f"<headrace.testing.Broker {self._address} {state}>"

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for clients; a stopped broker keeps its address for the next start."""
        self._check_started()
        return self._address

    @property
    def port(self) -> int:
        """The port of `bootstrap`."""
        return int(self.bootstrap.rpartition(":")[2])

    @property
    def data(self) -> Path:
        """The directory of its log."""
        if self._given_data is not None:
            return self._given_data
        self._check_started()
        if self._temporary is None:
            raise BrokerFailed("this broker is closed and its temporary data has been removed")
        return Path(self._temporary.name)

    @property
    def is_running(self) -> bool:
        """Whether the broker was started, and not stopped since."""
        return self._host is not None

    @property
    def log(self) -> str:
        """The log of a `subprocess` broker since its start; a broker in this process logs to `logging`."""
        return self._host.log if self._host is not None else ""

    def start(self) -> Self:
        """Starts the broker, unless it runs, and waits until it answers. Raises `BrokerFailed`."""
        if self._host is not None:
            return self
        if self._given_data is None and self._temporary is None:
            self._temporary = TemporaryDirectory(prefix="headrace-", ignore_cleanup_errors=True)
        self._was_started = True
        host = _new_host(self._subprocess)
        try:
            properties = {**self._listener(), **self._properties, "log.dirs": str(self.data)}
            self._address = host.start(properties)
        except BaseException:
            self._remove_data()
            raise
        self._host = host
        return self

    def stop(self) -> None:
        """Stops the broker cleanly, if it runs, and keeps its data. Raises `BrokerFailed`."""
        host, self._host = self._host, None
        if host is not None:
            host.stop()

    def restart(self) -> None:
        """Stops the broker if it runs, and starts it again with the same address and data."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kills the broker like `kill -9`; needs `subprocess=True`. `restart` works afterwards."""
        if self._host is not None:
            self._host.kill()
            self._host = None

    def close(self) -> None:
        """Stops the broker, and removes its data if the directory is temporary."""
        try:
            self.stop()
        finally:
            self._remove_data()

    def client_options(self, user: str = "alice", mechanism: str | None = None) -> dict[str, str]:
        """Kafka's client options of a user of a secured broker, as Java's clients and headrace's take them; none
        without security. `headrace.testing.security` turns them into those of other clients."""
        self._check_started()
        return {} if self._files is None else self._files.client_options(user, mechanism)

    def client_settings(self, user: str = "alice", mechanism: str | None = None) -> ClientSettings:
        """The same as settings of `headrace.client`."""
        from headrace.client.security.client_options import client_settings

        return client_settings(self.client_options(user, mechanism))

    def _listener(self) -> dict[str, str]:
        """The settings of the listener; makes certificates and users at the first start."""
        security = self._security
        if security is None:
            return {"listeners": self._address}
        if self._files is None:
            import asyncio

            from headrace.testing.security import SecurityFiles, add_scram_users

            self._private = TemporaryDirectory(prefix="headrace-security-", ignore_cleanup_errors=True)
            self._files = SecurityFiles(security, Path(self._private.name))
            self.data.mkdir(parents=True, exist_ok=True)
            asyncio.run(add_scram_users(self.data, security))
        return {"listeners": f"{security.protocol}://{self._address}", **self._files.broker_settings()}

    def _remove_data(self) -> None:
        temporary, self._temporary = self._temporary, None
        private, self._private, self._files = self._private, None, None
        for each in (temporary, private):
            if each is not None:
                each.cleanup()

    def _check_started(self) -> None:
        if not self._was_started:
            raise BrokerFailed("this broker is not started: use `with Broker() as broker:`, or call start()")


def _checked(settings: Mapping[str, SettingValue]) -> dict[str, str]:
    """As `headrace serve` takes them, over `TEST_SETTINGS`. Raises `InvalidConfig`."""
    from headrace.config import format_value, parse_broker
    from headrace.errors import InvalidConfig

    for name in _DATA_SETTINGS:
        if name in settings:
            raise InvalidConfig(f"{name} is not set here: the directory is an argument, Broker(data=...)")
    properties = {name: format_value(value) for name, value in {**TEST_SETTINGS, **settings}.items()}
    parse_broker(properties)
    return properties


def _security_of(given: Security | str | None) -> Security | None:
    """Raises `InvalidConfig` for a protocol or a mechanism that there is not."""
    if given is None or not isinstance(given, str):
        return given
    from headrace.errors import InvalidConfig
    from headrace.testing.security import Security

    try:
        return Security(given)
    except ValueError as error:
        raise InvalidConfig(str(error)) from None


def _new_host(subprocess: bool) -> Host:
    if subprocess:
        from headrace.testing.process import BrokerProcess

        return BrokerProcess()
    from headrace.testing.thread import BrokerThread

    return BrokerThread()
