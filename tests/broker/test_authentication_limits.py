"""What a client that has yet to authenticate can make the broker keep and do: little, and nothing once it has left."""

import asyncio
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from headrace.broker.security import authentication
from headrace.broker.security.worker import AuthenticationThreads, ClientLeft
from headrace.limits import AUTHENTICATION_ROUNDS_MAX
from headrace.testing import Broker
from tests.bearer_tokens import Issuer
from tests.broker.test_authentication import (
    API_VERSIONS,
    AUTHENTICATE,
    METADATA,
    SETTINGS,
    authenticate,
    handshake,
    is_closed,
    serves,
)
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import receive_frame
from tests.wire import Wire, frame

UNSUPPORTED = 99


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = tmp_path_factory.mktemp("issuer") / "jwks"
    keys.write_bytes(Issuer().jwks())
    settings = {
        **SETTINGS,
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "connection.failed.authentication.delay.ms": 60_000,
        "headrace.authentication.timeout.ms": 60_000,
    }
    with Broker(settings=settings) as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


def message(data: bytes) -> bytes:
    return frame(AUTHENTICATE, 1, struct.pack(">i", len(data)) + data)


def test_versions_are_asked_for_a_few_times_only(wire: Wire) -> None:
    for _ in range(AUTHENTICATION_ROUNDS_MAX):
        wire.ask(API_VERSIONS, UNSUPPORTED, b"\0")
    wire.send(API_VERSIONS, UNSUPPORTED, b"\0")
    assert is_closed(wire)


def test_asking_for_versions_again_and_again_gives_no_further_time() -> None:
    settings = {**SETTINGS, "headrace.authentication.timeout.ms": 500}
    with Broker(settings=settings) as broker, Wire(broker.bootstrap) as wire:
        began, asked = time.monotonic(), 0
        with suppress(OSError):
            while time.monotonic() - began < WITHIN_SECONDS:
                wire.ask(API_VERSIONS, UNSUPPORTED, b"\0")
                asked += 1
                time.sleep(0.05)
        assert 1 < asked < AUTHENTICATION_ROUNDS_MAX, "the limit on requests did not end it"


def test_many_requests_behind_a_wrong_password_close_the_connection(wire: Wire) -> None:
    """Each of these requests is a byte that would cost a quarter of a kilobyte while the failure is delayed."""
    handshake(wire)
    wire.socket.sendall(message(b"\0alice\0wrong") + struct.pack(">ib", 1, 0) * 20_000)
    wire.socket.settimeout(30)  # the failure itself is answered in a minute
    assert is_closed(wire)


def test_a_thousand_requests_right_behind_the_password_are_served(wire: Wire) -> None:
    handshake(wire)
    wire.socket.sendall(message(b"\0alice\0wonder") + frame(METADATA, 1, bytes(4)) * 1000)
    for _ in range(1001):
        receive_frame(wire.socket)


def test_large_incomplete_messages_are_bounded_together(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "AUTHENTICATION_BYTES_MAX", 1 << 18)
    with ExitStack() as stack:

        def begin(size: int) -> Wire:
            wire = stack.enter_context(Wire(broker.bootstrap))
            assert handshake(wire, "OAUTHBEARER")[0] == 0
            wire.socket.sendall(struct.pack(">i", size) + message(b"x")[4:])
            return wire

        small = [begin(1000) for _ in range(4)]
        first, second = begin(100_000), begin(100_000)
        begin(100_000)
        assert is_closed(first)
        first = begin(50_000)
        begin(125_000)
        assert is_closed(second)
        for each in (*small, first):
            each.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.socket.recv(1)


def test_a_client_that_authenticates_again_may_send_a_large_message_whatever_strangers_do(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "AUTHENTICATION_BYTES_MAX", 100_000)
    with Wire(broker.bootstrap) as known, Wire(broker.bootstrap) as stranger:
        handshake(known)
        assert authenticate(known, b"\0alice\0wonder").error_code == 0
        assert handshake(known)[0] == 0
        assert handshake(stranger, "OAUTHBEARER")[0] == 0
        stranger.socket.sendall(struct.pack(">i", 120_000) + message(b"x")[4:])
        assert is_closed(stranger)
        assert authenticate(known, b"\0alice\0wonder").error_code == 0
        assert serves(known)


async def nothing_left() -> None:
    """Returns when every callback that is due has run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_step_that_waits_for_its_turn_is_gone_when_it_is_cancelled() -> None:
    worker, released, ran = AuthenticationThreads("test"), threading.Event(), []
    try:
        busy = [asyncio.create_task(worker.run(lambda: released.wait(WITHIN_SECONDS), lambda: False)) for _ in range(2)]
        waiting = [asyncio.create_task(worker.run(lambda: ran.append(1), lambda: False)) for _ in range(100)]
        last = asyncio.create_task(worker.run(lambda: "last", lambda: False))
        await nothing_left()
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        released.set()
        assert await last == "last"
        assert await asyncio.gather(*busy) == [True, True]
        assert not ran
    finally:
        worker.close()


async def test_a_step_whose_client_has_left_does_not_run() -> None:
    worker, ran = AuthenticationThreads("test"), []
    try:
        with pytest.raises(ClientLeft):
            await worker.run(lambda: ran.append(1), lambda: True)
        assert not ran
        assert await worker.run(lambda: "done", lambda: False) == "done"
    finally:
        worker.close()


@pytest.mark.parametrize("is_evicted", [False, True])
def test_the_work_of_a_client_that_is_gone_is_not_done(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_evicted: bool
) -> None:
    """The client leaves while its token waits to be verified, or the broker closes its connection meanwhile."""
    outcomes: list[str] = []
    turns: list[asyncio.AbstractEventLoop] = []
    turn = asyncio.Event()
    run = AuthenticationThreads.run

    async def later(self: AuthenticationThreads, work: Callable[[], Any], has_left: Callable[[], bool]) -> Any:
        turns.append(asyncio.get_running_loop())
        outcomes.append("waiting")
        try:
            await turn.wait()
            return await run(self, work, has_left)
        except BaseException as error:
            outcomes.append(type(error).__name__)
            raise

    monkeypatch.setattr(AuthenticationThreads, "run", later)
    token = Issuer().token()
    with Wire(broker.bootstrap) as wire:
        assert handshake(wire, "OAUTHBEARER")[0] == 0
        wire.socket.sendall(message(f"n,,\x01auth=Bearer {token}\x01\x01".encode()))
        eventually(lambda: outcomes == ["waiting"], "the verification to wait")
        if is_evicted:
            monkeypatch.setattr(authentication, "AUTHENTICATING_MAX", 1)
            with Wire(broker.bootstrap):
                assert is_closed(wire)
            eventually(lambda: outcomes == ["waiting", "CancelledError"], "the end of the verification")
    turns[0].call_soon_threadsafe(turn.set)
    if not is_evicted:
        eventually(lambda: outcomes == ["waiting", "ClientLeft"], "the verification to be left out")
