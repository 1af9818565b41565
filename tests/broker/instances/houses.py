"""A broker of this process with two instances, each behind a listener of its own, and a listener of the operator."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from headrace.broker.app import running
from headrace.config import parse_broker
from headrace.instances.definition import Instance
from headrace.types import BrokerId
from tests.asker import Asker
from tests.eventually import WITHIN_SECONDS, eventually

T = TypeVar("T")
SETTINGS = {
    "listeners": "127.0.0.1:0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.enable": "true",
}


class Houses:
    """The broker. `bootstrap` is the operator's address, `addresses` has those of the instances."""

    def __init__(
        self, directory: Path, instances: tuple[Instance, ...], settings: Mapping[str, str] | None = None
    ) -> None:
        self._directory, self._instances, self._settings = directory, instances, settings or {}
        self.addresses: dict[str, str] = {}
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_ready.wait(WITHIN_SECONDS), "the broker did not start"
        for instance in self._instances:
            self.add(instance)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop, self._ends = asyncio.get_running_loop(), asyncio.Event()
        settings = {**SETTINGS, "log.dirs": str(self._directory), **self._settings}
        async with running(parse_broker(settings)) as (self.broker, listeners):
            self.bootstrap = f"127.0.0.1:{listeners[0].port}"
            self._is_ready.set()
            await self._ends.wait()

    def add(self, instance: Instance) -> str:
        """Makes an instance; returns its address."""
        instances, number = self.broker.instances, BrokerId(self.broker.config.broker_id)
        self.run(lambda: instances.create(instance))
        found = eventually(lambda: instances.endpoints().get(instance.name, {}).get(number), "a listener")
        assert found is not None
        host, port = found
        self.addresses[instance.name] = f"{host}:{port}"
        return self.addresses[instance.name]

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs something on the broker's loop."""
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(WITHIN_SECONDS)

    def ask(self, name: str) -> Asker:
        """A connection to an instance."""
        return Asker(self.addresses[name])
