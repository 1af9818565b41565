"""The finalized features follow the registrations, and a registration that cannot be read ends no broker."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from headrace.broker.cluster.features import Features
from headrace.errors import ErrorCode, known_code
from headrace.metadata import znodes
from headrace.metadata.deltas import MetadataDelta
from headrace.metadata.model import Broker, Endpoint
from headrace.types import BrokerId

OURS = Broker(BrokerId(1), (Endpoint("PLAINTEXT", "a", 1),), directory="d", supports_fencing=True)
THEIRS = OURS._replace(directory=None, supports_fencing=False)


async def levels(*registrations: tuple[bytes, int]) -> list[tuple[int, int]]:
    """The level and the epoch after each registration of the cluster's only broker (data, czxid)."""
    nodes = iter(registrations)
    listeners: list[Any] = []

    async def get(path: str) -> object:
        data, czxid = next(nodes)
        return SimpleNamespace(data=data, czxid=czxid)

    tasks: list[asyncio.Task[None]] = []
    metadata = SimpleNamespace(brokers={BrokerId(1): OURS}, on_change=listeners.append)
    features = Features(
        cast(Any, SimpleNamespace(get=get)),
        cast(Any, metadata),
        lambda work: tasks.append(asyncio.ensure_future(work)),
        is_alone=False,
    )
    found = []
    for _ in registrations:
        listeners[0](MetadataDelta(brokers_changed=frozenset({BrokerId(1)})))
        await tasks.pop()
        found.append((features.transaction_version, features.epoch))
    return found


async def test_the_level_follows_the_brokers_and_the_epoch_never_falls() -> None:
    ours, theirs = znodes.encode_broker(OURS, 0), znodes.encode_broker(THEIRS, 0)
    assert await levels((ours, 5), (theirs, 9), (ours, 7)) == [(2, 5), (0, 9), (2, 9)]


async def test_a_registration_that_cannot_be_read_sets_level_0() -> None:
    ours = znodes.encode_broker(OURS, 0)
    assert await levels((ours, 5), (b"{", 6), (ours, 7)) == [(2, 5), (0, 5), (2, 7)]


def test_a_code_of_a_newer_release_is_an_unknown_error() -> None:
    assert known_code(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert known_code(12_345) is ErrorCode.UNKNOWN_SERVER_ERROR
