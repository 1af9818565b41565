"""The failure of a mirror."""

from headrace.errors import KafkaError


class MirrorStopped(KafkaError):
    """The mirror cannot go on; the message says why and what to do."""
