"""Tells clients that they are in a fork of the process that made them.

A fork has copies of the client's memory and sockets, but not of its threads, and its locks may be held for ever by
threads that do not exist. So no client works in a fork, and each says so at the first call instead of waiting. Nobody
pays for it: the kernel's own hook marks the clients, once, in the child.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from headrace.client.core.failures import ClientForked


class Forkable(Protocol):
    """What is told in a child of the process."""

    def forked(self) -> None:
        """This process is a fork of the one that made the client. May wait for nothing."""


_known: WeakSet[Forkable] = WeakSet()


def watch(client: Forkable) -> None:
    """Call `client.forked()` in every fork of this process, while the client lives."""
    _known.add(client)


def forked_error(made_in: int) -> ClientForked:
    """The error of a call in a fork."""
    return ClientForked(
        f"this client was made in process {made_in}, and this is process {os.getpid()}, a fork of it: a fork has none "
        "of the client's threads, and shares its connections. Make clients after the fork (in multiprocessing: in the "
        "worker, or with the start method 'spawn')"
    )


def _tell() -> None:
    for client in list(_known):
        client.forked()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_tell)
