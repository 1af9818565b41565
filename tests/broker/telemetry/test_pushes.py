"""What pushes may take of the broker: short turns of its event loop, and one of its threads."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from headrace.broker.telemetry.service import POINTS_PER_PUSH_MAX, POINTS_PER_TURN, ClientTelemetry
from headrace.protocol import messages as m
from tests.broker.telemetry import otlp_writer as otlp


class OpenPeer:
    principal = "User:ANONYMOUS"
    is_closed = False


class CountingExecutor(ThreadPoolExecutor):
    """Knows how much work it was given at once."""

    def __init__(self) -> None:
        super().__init__(8)
        self._guard, self._given, self.most = threading.Lock(), 0, 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        with self._guard:
            self._given += 1
            self.most = max(self.most, self._given)
        work = super().submit(fn, *args, **kwargs)
        work.add_done_callback(self._done)
        return work

    def _done(self, _: "Future[Any]") -> None:
        with self._guard:
            self._given -= 1


def telemetry() -> ClientTelemetry:
    made = ClientTelemetry(
        max_bytes=1 << 20, now_ms=lambda: 10**12, new_id=lambda: bytes(16), loop=asyncio.get_running_loop()
    )
    made.configs_changed("all", {"metrics": "*", "interval.ms": "1000"})
    return made


async def push(telemetry: ClientTelemetry, client: bytes, payload: bytes) -> None:
    peer = OpenPeer()
    subscription = telemetry.get(client, {}, peer).subscription_id
    request = m.PushTelemetryRequest(client_instance_id=client, subscription_id=subscription, metrics=payload)
    await telemetry.push(request, {}, peer)


def payload_of(points: int) -> bytes:
    values: dict[tuple[tuple[str, str], ...], float] = {
        (("partition", str(number)),): number for number in range(points)
    }
    return otlp.payload(otlp.metric("one", values))


@pytest.mark.slow
def test_one_metric_of_many_points_is_taken_in_slices() -> None:
    async def most_in_a_turn() -> int:
        broker, seen, most = telemetry(), 0, 0
        work = asyncio.ensure_future(push(broker, b"c" * 16, payload_of(POINTS_PER_PUSH_MAX)))
        while not work.done():
            await asyncio.sleep(0)
            most, seen = max(most, broker.pushed.received - seen), broker.pushed.received
        assert seen == POINTS_PER_PUSH_MAX
        return most

    assert asyncio.run(most_in_a_turn()) <= POINTS_PER_TURN


def test_pushes_of_many_clients_take_one_thread() -> None:
    async def most() -> int:
        executor, broker = CountingExecutor(), telemetry()
        asyncio.get_running_loop().set_default_executor(executor)
        payload = payload_of(100)
        await asyncio.gather(*(push(broker, bytes([number]) * 16, payload) for number in range(1, 20)))
        assert len(broker.pushed) == 19 * 100
        return executor.most

    assert asyncio.run(most()) == 1
