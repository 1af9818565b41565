"""Answers about refused requests of many elements, made in parts: a principal without rights must not hold the event
loop with the longest requests that there are, fifty thousand users or partitions.

The request is cut along its array, and along the one array in that array's elements, if there is one. The response has
such arrays too; of the few APIs where it has another form, all is answered at once. A name that two parts repeat is
answered in both.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from headrace.broker.request.sliced_requests import answer_parts
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.protocol.codec.message import Message, Struct


def has_many(request: object) -> bool:
    """Whether the answer about a refused request is made in parts."""
    return isinstance(request, Struct) and _left(request, ELEMENTS_PER_SLICE) < 0


async def refused_in_parts(request: Any, refuse: Callable[[Any], Message]) -> Message:
    """As `refuse(request)`. Of a request with several arrays each is answered by itself."""
    arrays = _arrays(request)
    whole: Any = None
    for array in arrays:
        part = copy(request)
        for other in arrays:
            if other != array:
                setattr(part, other, [])
        path = (array, *_inner(getattr(part, array)))
        answers = _paths_of(refuse(_first(part, path)), len(path))
        if not answers:
            continue  # it is not answered about this array
        if len(answers) < len(path):
            return refuse(request)  # it has another form than the request
        answer = await answer_parts(part, path, answers, refuse, ELEMENTS_PER_SLICE)
        if whole is None:
            whole = answer
        else:
            getattr(whole, answers[0]).extend(getattr(answer, answers[0]))
    return refuse(request) if whole is None else whole


def _arrays(struct: Struct) -> list[str]:
    """The fields that are arrays with elements."""
    return [name for name in struct.FIELDS if isinstance(value := getattr(struct, name), list) and value]


def _left(struct: Struct, left: int) -> int:
    """`left` less the elements in a struct; negative when there are more."""
    for name in _arrays(struct):
        elements = getattr(struct, name)
        left -= len(elements)
        if isinstance(elements[0], Struct):
            for each in elements:
                if left < 0:
                    break
                left = _left(each, left)
    return left


def _inner(elements: Sequence[Any]) -> tuple[str, ...]:
    """The names of the one array in each element, of the one in its elements, and so on."""
    longest = max(elements, key=lambda each: len(_arrays(each))) if isinstance(elements[0], Struct) else None
    names = [] if longest is None else _arrays(longest)
    return (names[0], *_inner(getattr(longest, names[0]))) if len(names) == 1 else ()


def _first(struct: Any, path: Sequence[str]) -> Any:
    """The struct with one element in each array of the path."""
    found = copy(struct)
    elements = getattr(struct, path[0])[:1]
    if len(path) > 1 and elements and getattr(elements[0], path[1]):
        elements = [_first(elements[0], path[1:])]
    setattr(found, path[0], elements)
    return found


def _paths_of(answer: Any, depth: int) -> tuple[str, ...]:
    """The arrays of an answer, from the outer to the inner one, as long as there is one alone; at most `depth`."""
    names = _arrays(answer) if depth and isinstance(answer, Struct) else []
    return (names[0], *_paths_of(getattr(answer, names[0])[0], depth - 1)) if len(names) == 1 else ()
