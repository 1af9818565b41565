# cython: language_level=3, annotation_typing=False, binding=False
"""The broker epoch of this broker's registration, as everybody sees it who sends it.

Compiled, since each fetch of a follower has it; it also runs uncompiled.
"""


class BrokerEpoch:
    """The epoch of the last registration. `Registration` keeps it current."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value

    def __call__(self) -> int:
        """The epoch."""
        return self.value
