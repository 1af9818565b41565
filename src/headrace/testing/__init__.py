"""A real broker for tests: `with Broker() as broker: ...`, or the pytest fixture `headrace_broker`.

    Broker ──▶ BrokerThread    the broker that `headrace serve` runs, on a thread of this process (the default)
          └──▶ BrokerProcess   the same in a process of its own, which can be killed

Nothing is simulated: any Kafka client connects to `broker.bootstrap`. Each broker has its own loopback port and
directory, so tests can run in parallel. When it is closed, no thread, process, descriptor or file is left.

pytest imports this package at every start, even if no test uses it, so it imports nothing. The broker is imported when
the first one starts. May know the broker and its settings. Begin with `broker`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing.broker import Broker, SettingValue
    from headrace.testing.host import BrokerFailed
    from headrace.testing.security import Security

__all__ = ["Broker", "BrokerFailed", "Security", "SettingValue"]


if not TYPE_CHECKING:  # where a type checker saw it, a misspelt import would pass

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from headrace.testing import broker, security

        return getattr(security if name == "Security" else broker, name)
