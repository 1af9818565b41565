# cython: language_level=3, annotation_typing=False, binding=False, boundscheck=False, wraparound=False
# cython: initializedcheck=False
"""One pass over all readable sockets in a turn of the event loop.

    loop ── readable ──▶ ReceivePass (an epoll of its own) ── on_readable() ──▶ each connection

The event loop has a handle for each descriptor that it watches, and calls it with a context. A pass has a row for each
and calls it directly: with many connections, the loop has one handle for all of them. The first few stay with the loop,
because a pass of one socket would only add a system call. A turn has a limit, so that whatever else the loop has to do
is not kept waiting. In the next turn the kernel reports first the sockets that had none.

    turn    answers to several receivers, which leave together at the end of a pass
    after   what follows from all that was received: at the end of a pass, behind the answers, and of each receiver
            that is left to the loop. A callback of the loop would cost more, and come later.

Compiled, since every request passes it; it also runs uncompiled. Where the system has no epoll, the loop watches all.
"""

import asyncio
import select
from array import array

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

from headrace.limits import RECEIVERS_OF_THE_LOOP, RECEIVERS_PER_TURN_MAX

if cython.compiled:
    from cython.cimports.headrace.network.socket_calls import readable_ones

_PER_TURN_MAX = RECEIVERS_PER_TURN_MAX  # as a C integer


class Receiver:
    """Is called when a descriptor is readable."""

    __slots__ = ()

    def on_readable(self) -> None:
        """Receives what is there."""
        raise NotImplementedError


class Turn:
    """What is put off to the end of a turn."""

    __slots__ = ("is_open",)

    def __init__(self) -> None:
        self.is_open = False
        """Whether a turn has begun, so that something can be put off."""

    def flush(self) -> None:
        """Does what was put off."""


class Alone:
    """A receiver that the loop watches. Each time it is readable is a turn of its own."""

    __slots__ = ("_after", "_receiver")

    def __init__(self, receiver: Receiver, after: Turn) -> None:
        self._receiver, self._after = receiver, after

    def take_turn(self) -> None:
        """Calls the receiver."""
        after = self._after
        after.is_open = True
        try:
            self._receiver.on_readable()
        finally:
            after.is_open = False
            after.flush()


class ReceivePass:
    """The receivers of one event loop. All calls are in its thread."""

    __slots__ = (
        "_after", "_left_to_loop", "_loop", "_of_the_loop", "_poll", "_poll_fd", "_ready", "_receivers", "turn",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        left_to_loop: int = RECEIVERS_OF_THE_LOOP,
        turn: Turn | None = None,
        after: Turn | None = None,
    ) -> None:
        """`left_to_loop`: as many receivers stay with the loop, whichever come first."""
        self.turn = Turn() if turn is None else turn
        self._after = Turn() if after is None else after  # one may have a length, which is 0
        self._loop, self._left_to_loop = loop, left_to_loop
        self._receivers: list[Receiver | None] = []  # by descriptor
        self._of_the_loop = 0  # receivers that it has
        self._ready = memoryview(array("i", bytes(4 * _PER_TURN_MAX)))  # descriptors
        self._poll = select.epoll() if hasattr(select, "epoll") else None
        self._poll_fd = -1
        if self._poll is not None:
            self._poll_fd = self._poll.fileno()
            loop.add_reader(self._poll_fd, self.take_turn)

    def add(self, fd: int, receiver: Receiver) -> None:
        """Calls the receiver whenever the descriptor is readable, until `remove`."""
        receivers = self._receivers
        while len(receivers) <= fd:
            receivers.append(None)
        if self._poll is not None and self._of_the_loop >= self._left_to_loop:
            try:
                self._poll.register(fd, select.EPOLLIN)
            except OSError:  # the kernel's limit of watched descriptors
                pass
            else:
                receivers[fd] = receiver
                return
        self._loop.add_reader(fd, Alone(receiver, self._after).take_turn)
        self._of_the_loop += 1

    def remove(self, fd: int) -> None:
        """Ends what `add` began. The descriptor is open."""
        if self._receivers[fd] is None:
            self._loop.remove_reader(fd)
            self._of_the_loop -= 1
            return
        self._receivers[fd] = None
        if self._poll is not None:
            self._poll.unregister(fd)

    def take_turn(self) -> None:
        """Calls the receivers of the descriptors that are readable now, of so many at most."""
        turn, after = self.turn, self._after
        turn.is_open = after.is_open = True
        try:
            self._call_all()
        finally:
            turn.is_open = False
            try:
                turn.flush()
            finally:
                after.is_open = False
                after.flush()

    def _call_all(self) -> None:
        number = 0
        if cython.compiled:
            count: int = readable_ones(self._poll_fd, cython.address(self._ready[0]), _PER_TURN_MAX)
            while number < count:
                self._call(self._ready[number])
                number += 1
        elif self._poll is not None:
            for fd, _ in self._poll.poll(0, _PER_TURN_MAX):
                self._call(fd)

    def _call(self, fd: int) -> None:
        receiver = self._receivers[fd]
        if receiver is None:  # an earlier one of this turn removed it
            return
        try:
            receiver.on_readable()
        except Exception as error:  # as the loop does with a callback's: the others get their turn
            self._loop.call_exception_handler({"message": "a connection could not be read", "exception": error})

    def close(self) -> None:
        """Ends the pass; all receivers have been removed."""
        if self._poll is not None:
            self._loop.remove_reader(self._poll_fd)
            self._poll.close()
            self._poll = None
