"""The two faces have the same calls, and the asyncio one nothing that may wait and is no coroutine."""

import inspect

import pytest

import headrace
from headrace.client import aio
from headrace.client.aio.calls import Awaited

FACES = [(getattr(headrace, name), getattr(aio, name)) for name in aio.__all__]
NOT_NEEDED = {
    "check_process", "forked", "interrupt", "usage",  # within the client
    "wakeup",  # a poll is cancelled
    "cluster", "watch_producer_id",  # of tools and of Spark's sink, which have threads
}  # fmt: skip
ON_THE_LOOP = {"group_metadata", "metrics", "on_acknowledged", "transaction"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and hasattr(kind, name)}


@pytest.mark.parametrize(("threaded", "face"), FACES)
def test_every_call_of_threads_is_one_of_tasks(threaded: type, face: type) -> None:
    assert public(threaded) - public(face) <= NOT_NEEDED


@pytest.mark.parametrize(("threaded", "face"), FACES)
def test_what_may_wait_is_a_coroutine_function(threaded: type, face: type) -> None:
    for name in public(face) - ON_THE_LOOP:
        found = inspect.getattr_static(face, name)
        if isinstance(found, Awaited):
            options = {"group_id": "kitchen"} if "Consumer" in face.__name__ else {}
            assert inspect.iscoroutinefunction(getattr(face("127.0.0.1:1", **options), name)), name
            assert found.__doc__ == getattr(threaded, name).__doc__
        else:
            assert isinstance(found, property) or inspect.iscoroutinefunction(found), name


@pytest.mark.parametrize(("threaded", "face"), FACES)
def test_calls_that_both_have_take_the_same_arguments(threaded: type, face: type) -> None:
    for name in (public(threaded) & public(face)) - {"transaction"}:
        found, known = inspect.getattr_static(face, name), getattr(threaded, name)
        if inspect.isfunction(found) and inspect.isfunction(known):
            wanted = [each for each in inspect.signature(known).parameters if each != "on_delivery"]
            assert list(inspect.signature(found).parameters) == wanted, name
