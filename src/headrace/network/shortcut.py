# cython: language_level=3, annotation_typing=False, binding=False
"""Answers to the most frequent requests, without the dispatcher.

A connection offers each frame to its dispatcher's shortcut, if it has one and nothing is waiting in the connection.
Compiled: the frame is passed as a place in the buffer of received bytes, without an object.
"""


class Shortcut:
    """Answers some frames. This one answers none."""

    __slots__ = ()

    def answer(self, connection: object, octets: memoryview, start: int, end: int) -> bytes | None:
        """The whole answer to the request in `octets[start:end]`. None, with nothing done, if the dispatcher has to
        handle it. `octets` may be written to, as a frame may."""
        return None
