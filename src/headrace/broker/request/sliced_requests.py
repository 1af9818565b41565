"""Answers large requests in parts, so that the event loop serves other connections in between.

A request whose handler looks up each element by itself is cut along its arrays into requests of at most
`PART_ELEMENTS` elements. The responses are joined in the order of the request, so the client sees no difference. The
connection is held meanwhile, so that no later request overtakes. A request with fewer elements is answered at once.

Between two parts the cluster may change, as it may between two requests.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

from headrace.broker.request.context import Answer, RequestContext
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.codec.message import Message

PART_ELEMENTS = 1000

Path = tuple[str, ...]
"""Names of nested arrays: each is a field of the elements of the one before it."""


def in_parts(
    ctx: RequestContext,
    request: Any,
    arrays: Path,
    answers: Path,
    answer: Callable[[Any], Message],
    fail: Callable[[Any, ErrorCode], Message],
    size: int = PART_ELEMENTS,
) -> Answer:
    """Answers with `answer(request)`, or with the joined answers to its parts. `arrays` and `answers` name the nested
    arrays of the request and of the response. `size`: elements of one part."""
    if _count(getattr(request, arrays[0]), arrays[1:]) <= size:
        return answer(request)

    def refused(error: Exception) -> Message:
        return fail(request, error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)

    return ctx.in_order(answer_parts(request, arrays, answers, answer, size), refused)


async def answer_parts(
    request: Any, arrays: Path, answers: Path, answer: Callable[[Any], Message], size: int = PART_ELEMENTS
) -> Message:
    """As `in_parts`, for a caller that holds the connection already."""
    if _count(getattr(request, arrays[0]), arrays[1:]) <= size:
        return answer(request)
    whole: Any = None
    for elements, depth in _parts(getattr(request, arrays[0]), arrays[1:], size):
        part = copy(request)
        setattr(part, arrays[0], elements)
        part_answer: Any = answer(part)
        if whole is None:
            whole = part_answer
        else:
            _join(getattr(whole, answers[0]), getattr(part_answer, answers[0]), answers[1:], depth)
        await asyncio.sleep(0)
    return whole  # type: ignore[no-any-return]


def _count(elements: Sequence[Any] | None, inner: Path) -> int:
    """The number of innermost elements; an element with an empty array counts as one."""
    if not inner or not elements:
        return len(elements or ())
    return sum(max(1, _count(getattr(each, inner[0]), inner[1:])) for each in elements)


def _parts(elements: Sequence[Any], inner: Path, size: int) -> Iterator[tuple[list[Any], int]]:
    """Yields the elements in parts, each with the number of levels on which it continues the part before."""
    if not inner:
        for start in range(0, len(elements), size):
            yield list(elements[start : start + size]), 0
        return
    part: list[Any] = []
    room = size
    for each in elements:
        count = max(1, _count(getattr(each, inner[0]), inner[1:]))
        if count > room and part:
            yield part, 0
            part, room = [], size
        if count <= room:
            part.append(each)
            room -= count
            continue
        for number, (held, depth) in enumerate(_parts(getattr(each, inner[0]), inner[1:], size)):
            piece = copy(each)
            setattr(piece, inner[0], held)
            yield [piece], 0 if number == 0 else 1 + depth
    if part:
        yield part, 0


def _join(whole: list[Any], more: list[Any], inner: Path, depth: int) -> None:
    """Appends the elements of one answer; on `depth` levels its first element continues the last one of `whole`."""
    if depth and whole and more:
        _join(getattr(whole[-1], inner[0]), getattr(more[0], inner[0]), inner[1:], depth - 1)
        more = more[1:]
    whole.extend(more)
