"""What can go wrong on this side of the wire, as errors that carry Kafka's nearest code.

A broker's own answer is raised as `headrace.errors.KafkaError`; these are the failures that no broker reported.
"""

from headrace.errors import ErrorCode, KafkaError


class BrokerUnreachable(KafkaError):
    """No connection: refused, unknown host, reset, or closed in the middle of an answer."""

    code = ErrorCode.NETWORK_EXCEPTION


class DeadlineExceeded(KafkaError):
    """The time allowed for a call ran out; the message names the last cause that was seen."""

    code = ErrorCode.REQUEST_TIMED_OUT


class BufferExhausted(KafkaError):
    """`buffer_memory_bytes` is full of unsent records and stayed full for `max_block_ms`."""

    code = ErrorCode.REQUEST_TIMED_OUT


class ClientClosed(KafkaError):
    """A call on a producer, consumer or cluster that was closed."""

    code = ErrorCode.INVALID_REQUEST


class NoOffset(KafkaError):
    """A partition without a position, where the caller asked for no default."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


def error_for(code: int, message: str) -> KafkaError:
    """A broker's error code as the exception class made for it, or as plain `KafkaError`."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return KafkaError(f"{message} (error code {code}, not known to this client)")
    kind = _BY_CODE.get(known)
    return kind(message) if kind is not None else KafkaError(message, known)


def _answered_classes() -> dict[ErrorCode, type[KafkaError]]:
    return {kind.code: kind for kind in KafkaError.__subclasses__() if kind.__module__ == KafkaError.__module__}


_BY_CODE = _answered_classes()
