"""A real broker inside a test: `with Broker() as broker: ...`, or the pytest fixture `headrace_broker`.

    Broker ──▶ BrokerThread    the broker that `headrace serve` runs, on a thread of this process (the default)
          └──▶ BrokerProcess   the same in a process of its own, which can be killed

Nothing is simulated: any Kafka client connects to `broker.bootstrap`. Each broker has a loopback port and a directory
of its own, so tests run beside each other; at its end no thread, process, descriptor or file is left.

pytest imports this package at every start, for those who use it and for those who do not, so it imports nothing: the
broker comes in when the first one starts.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing.broker import Broker, BrokerFailed, SettingValue

__all__ = ["Broker", "BrokerFailed", "SettingValue"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headrace.testing import broker

    return getattr(broker, name)
