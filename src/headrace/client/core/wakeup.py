"""Ends the wait of a thread that waits for sockets: another thread makes one more descriptor readable.

A pair of connected sockets and not a pipe, because Windows can wait for nothing else.
"""

from __future__ import annotations

import socket

from headrace.network.transport import receive

_BYTES = 4_096


class Wakeup:
    """A flag that can be waited for beside sockets. Any thread may set it; one thread waits and takes it."""

    __slots__ = ("_receiver", "_sender")

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def fileno(self) -> int:
        """What is readable while the flag is set."""
        return self._receiver.fileno()

    def set(self) -> None:
        """Set the flag. After `close` it does nothing."""
        try:
            self._sender.send(b"w")
        except OSError:
            pass  # full of wake-ups already, or closed

    def take(self) -> bool:
        """Clear the flag; whether it was set."""
        try:
            return bool(receive(self._receiver, _BYTES))
        except OSError:
            return False  # nobody woke us

    def close(self) -> None:
        """Close the descriptors, once nobody waits."""
        self._receiver.close()
        self._sender.close()
