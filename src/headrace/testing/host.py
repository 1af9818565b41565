"""The interface of the thread or process that runs a test's broker, and the error of a broker that fails."""

from collections.abc import Mapping
from typing import Protocol


class BrokerFailed(RuntimeError):
    """A broker did not start, ended by itself, or did not stop. The message has the reason, if it is known."""


class Host(Protocol):
    """The thread or process of a broker. Used once: a restarted broker has a new one."""

    def start(self, properties: Mapping[str, str]) -> str:
        """Runs a broker with these settings; its address once it answers. Raises `BrokerFailed`."""
        ...

    def stop(self) -> None:
        """Asks it to stop, and waits until nothing of it is left. Raises `BrokerFailed`, also when it ended before."""
        ...

    def kill(self) -> None:
        """Ends the broker without a chance to write anything. Raises `BrokerFailed` if this is not possible."""
        ...

    @property
    def log(self) -> str:
        """What it has logged, where that does not go to this process's own `logging`."""
        ...
