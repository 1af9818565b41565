"""The settings of quotas on clients. Source: Kafka's `QuotaConfig`."""

from dataclasses import dataclass

from headrace.config.setting import Settings, declare
from headrace.limits import INT32_MAX


def check_override(entry: str) -> None:
    """Raises `ValueError` unless the entry is ADDRESS:NUMBER."""
    import ipaddress  # only brokers with overrides pay for the import

    host, _, count = entry.rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise ValueError("expected ADDRESS:NUMBER, with an IP address: names of hosts are not looked up") from None
    if not count.isdecimal():
        raise ValueError(f"{count!r} is not a number of connections")


# fmt: off
@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class QuotaSettings(Settings):
    """How much a client may use at once before its quota delays it. `BrokerConfig` has its slots."""

    __slots__ = ()

    controller_quota_window_num: int = declare(
        11, "controller.quota.window.num", "int",
        "A client that was idle may create and delete controller.quota.window.num * "
        "controller.quota.window.size.seconds times its controller_mutation_rate at once.", low=1)
    controller_quota_window_size_seconds: int = declare(
        1, "controller.quota.window.size.seconds", "int", "See controller.quota.window.num.", unit="s", low=1)
    listener_limits: tuple[tuple[str, str, int], ...] = ()
    """The limits of single listeners: listener (in capitals), setting, value."""
    max_connection_creation_rate: int = declare(
        INT32_MAX, "max.connection.creation.rate", "int",
        "The maximum rate of new connections. Those beyond it wait. listener.name.NAME.max.connection.creation.rate is "
        "for one listener.", unit="1/s", low=1, dynamic=True)
    max_connections_per_ip_overrides: tuple[str, ...] = declare(
        (), "max.connections.per.ip.overrides", "list",
        "Addresses with another max.connections.per.ip, as ADDRESS:NUMBER,...", check=check_override, dynamic=True)
    quota_window_num: int = declare(
        11, "quota.window.num", "int",
        "A client that was idle may use (quota.window.num - 1) * quota.window.size.seconds times the rate of its quota "
        "at once.", low=2)
    quota_window_size_seconds: int = declare(
        1, "quota.window.size.seconds", "int",
        "See quota.window.num. A request_percentage or a rate of new connections delays a client for at most this "
        "time.", unit="s", low=1)
