"""Why a connection dispatches no request.

A held connection dispatches no request and reads nothing. Each reason is set and released by itself, so that the end of
one does not end another: a throttled connection whose large batch is checked meanwhile stays throttled. The connection
resumes when no reason is left. Responses are sent at all times.
"""

from enum import IntFlag


class Held(IntFlag):
    """Reasons for which a connection dispatches no request."""

    ORDER = 1
    """A request is in progress that no later one may overtake: a large batch checked on an executor, a topic
    created."""
    THROTTLE = 2
    """The client exceeded its quota; the hold ends at a given time."""
    FULL = 4
    """The peer does not read its responses, or sends requests faster than they are answered; or it has responses to
    read while the responses of all connections together exceed `queued.max.response.bytes`."""
    AUTHENTICATION = 8
    """The peer has yet to prove its identity."""
    DECODING = 16
    """A large request is decoded in slices; later requests must not overtake it."""
    ENCODING = 32
    """A large response is encoded in slices; a client that sends request after request waits for it."""
    ADMISSION = 64
    """A request with many resources is decided about in slices; later requests must not overtake it."""
    FLOW_IN = 128
    """The instance has used up its rate of bytes in; the instance's gate releases the connection at its turn."""
    FLOW_OUT = 256
    """The same of bytes out."""
    FLOW_GROUPS = 1024
    """The same of what is written about groups."""
    NAMES = 512
    """The names in a large request or response are translated in slices, for a client of an instance."""
