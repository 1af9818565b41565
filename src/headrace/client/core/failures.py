"""Errors that occur in the client, each with the nearest error code of Kafka.

An error that a broker returns is raised as `headrace.errors.KafkaError`. These are failures that no broker reported.
"""

from headrace.errors import ErrorCode, KafkaError, OffsetOutOfRange


class BrokerUnreachable(KafkaError):
    """No connection: it was refused, reset, or closed in the middle of an answer, or the host is unknown."""

    code = ErrorCode.NETWORK_EXCEPTION


class SecurityMismatch(BrokerUnreachable):
    """A broker refuses this client's security settings, or the client the broker's; the message says what to change.

    `is_certain` is False where a broker that merely stops would do the same.
    """

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class DeadlineExceeded(KafkaError):
    """The deadline of a call passed; the message names the last error that was seen."""

    code = ErrorCode.REQUEST_TIMED_OUT


class BufferExhausted(KafkaError):
    """`buffer_memory_bytes` is full of unsent records and stayed full for `max_block_ms`."""

    code = ErrorCode.REQUEST_TIMED_OUT


class ClientClosed(KafkaError):
    """A call on a producer, consumer or cluster that was closed."""

    code = ErrorCode.INVALID_REQUEST


class ClientForked(ClientClosed):
    """A call on a client in a fork of the process that made it."""


class ConcurrentUse(KafkaError):
    """Two threads called one consumer at the same time."""

    code = ErrorCode.INVALID_REQUEST


class NoOffset(KafkaError):
    """A partition has no position, and the caller requested no default."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class TopicCreatedAnew(OffsetOutOfRange):
    """A position is of a topic that was deleted; of the one that was created under its name, nothing was read."""


def error_for(code: int, message: str) -> KafkaError:
    """The exception for a broker's error code: its own class if there is one, else `KafkaError`."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return KafkaError(f"{message} (error code {code}, not known to this client)")
    kind = _BY_CODE.get(known)
    return kind(message) if kind is not None else KafkaError(message, known)


def _answered_classes() -> dict[ErrorCode, type[KafkaError]]:
    return {kind.code: kind for kind in KafkaError.__subclasses__() if kind.__module__ == KafkaError.__module__}


_BY_CODE = _answered_classes()
