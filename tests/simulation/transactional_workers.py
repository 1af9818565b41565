"""Applications that use transactions, with all their lives, and readers of what they committed.

    Writer      writes to several partitions in one transaction
    Processor   consumes committed records of partition 0, produces a record for each, and commits its group's offset in
                the same transaction (consume-transform-produce). A new life continues at the committed offset.

Each transaction has a fate: it is committed or aborted, its client dies in it, a successor with the same transactional
id starts while the client goes on, or the client is idle for longer than the transaction's time-out.
"""

from abc import ABC, abstractmethod
from enum import Enum, auto
from random import Random
from typing import TYPE_CHECKING

from headrace.network.peers.peers import PeerUnreachable
from tests.simulation.clients import Client
from tests.simulation.transactions import Abortable, Fenced, TransactionalProducer, committed_offset, fetch_committed

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

INPUT = 0
"""The partition that processors consume."""

INPUT_BYTES = 500

MS = 1000


class Fate(Enum):
    """What becomes of a transaction, unless a fault gets in its way."""

    COMMIT = auto()
    ABORT = auto()
    DIE = auto()
    BE_REPLACED = auto()
    BE_IDLE = auto()


_FATES = (*(Fate.COMMIT,) * 14, *(Fate.ABORT,) * 3, Fate.DIE, Fate.BE_REPLACED, Fate.BE_IDLE)


class Application(ABC):
    """An application with one transactional id."""

    def __init__(self, cluster: "Cluster", transactional_id: str, version: int, *, pace_ms: int) -> None:
        self.cluster, self.transactional_id, self._version = cluster, transactional_id, version
        self._pace_ms = pace_ms
        self._lives = 0
        self._running: set[int] = set()
        self._awaits_successor = False
        self.is_stopping = False

    @property
    def has_ended(self) -> bool:
        """Whether no life of it runs."""
        return not self._running

    def start(self) -> None:
        """Starts the next life."""
        self._awaits_successor = False
        if self.is_stopping:
            return
        self._lives += 1
        life = self._lives
        client = Client(self.cluster, f"{self.transactional_id}.{life}")
        self._running.add(life)
        client.process.call(client.process.loop.create_task, self._live(client, life))

    async def _live(self, client: Client, life: int) -> None:
        timeout_ms = self.cluster.plan.transaction_timeout_ms
        producer = TransactionalProducer(client, self.transactional_id, self._version, timeout_ms)
        try:
            await producer.init()
            while not self.is_stopping:
                await self.work(producer)
                await client.pause(0, 2 * self._pace_ms)
        except Fenced as error:
            client.note(f"must end: {error}")
        self._running.discard(life)
        self._succeed(life, client.chance.randrange(300))

    async def last_transaction(self) -> bool:
        """Commits a record to every partition in a last life."""
        client = Client(self.cluster, f"{self.transactional_id}.last")
        done: list[bool] = []

        async def live() -> None:
            producer = TransactionalProducer(client, self.transactional_id, self._version, 60_000)
            await producer.init()
            producer.begin()
            await producer.send({number: [""] for number in range(self.cluster.plan.partitions)})
            done.append(await producer.end(is_commit=True))

        await live()
        return done == [True]

    def _succeed(self, life: int, delay_ms: int) -> None:
        """Starts a successor of a life, if it has none."""
        if life == self._lives and not self._awaits_successor and not self.is_stopping:
            self._awaits_successor = True
            self.cluster.network.process.call_in(delay_ms * MS, self.start)

    def _meet(self, fate: Fate, client: Client) -> None:
        """Lets the fate of a transaction come about while it is under way."""
        life = int(client.name.rpartition(".")[2])
        delay_us = client.chance.randrange(500) * MS
        if fate is Fate.DIE:
            self.cluster.network.process.call_in(delay_us, self._kill, client, life)
        elif fate is Fate.BE_REPLACED:
            self.cluster.network.process.call_in(delay_us, self._succeed, life, 0)

    def _kill(self, client: Client, life: int) -> None:
        if life in self._running:
            client.note("dies")
            client.process.kill()
            self.cluster.network.process_died(client.process, client.name, is_host_off=False)
            self._running.discard(life)
            self._succeed(life, client.chance.choice((20, 500, 2000)))

    async def _end(self, producer: TransactionalProducer, fate: Fate, *, is_abortable: bool) -> bool:
        """Ends a transaction; whether it was committed."""
        if fate is Fate.BE_IDLE and not is_abortable:
            timeout_ms = self.cluster.plan.transaction_timeout_ms
            await producer.client.pause(timeout_ms // 2, 2 * timeout_ms)
        return await producer.end(is_commit=fate is not Fate.ABORT and not is_abortable)

    @abstractmethod
    async def work(self, producer: TransactionalProducer) -> None:
        """One transaction. Raises `Fenced`."""


class Writer(Application):
    """Writes to several partitions."""

    async def work(self, producer: TransactionalProducer) -> None:
        """One transaction. Raises `Fenced`."""
        client = producer.client
        chance, partitions = client.chance, range(client.cluster.plan.partitions)
        producer.begin()
        fate = chance.choice(_FATES)
        self._meet(fate, client)
        is_abortable = False
        try:
            for _ in range(chance.choice((1, 1, 2))):
                some = chance.sample(partitions, chance.randint(1, len(partitions)))
                await producer.send({each: [""] * chance.choice((1, 2)) for each in some})
        except Abortable as error:
            client.note(f"must abort: {error}")
            is_abortable = True
        await self._end(producer, fate, is_abortable=is_abortable)


class Processor(Application):
    """Consumes, transforms and produces."""

    def __init__(self, cluster: "Cluster", transactional_id: str, version: int, *, pace_ms: int) -> None:
        super().__init__(cluster, transactional_id, version, pace_ms=pace_ms)
        self.group = f"{transactional_id}-group"
        self._positions: dict[str, int] = {}

    async def work(self, producer: TransactionalProducer) -> None:
        """One transaction, if there is something to consume. Raises `Fenced`."""
        client = producer.client
        try:
            position = self._positions.get(client.name)
            if position is None:
                offset = await committed_offset(client, self.group, INPUT)
                if offset is None:
                    return
                position = self._positions[client.name] = max(offset, 0)
            found = await fetch_committed(client, INPUT, position, max_bytes=INPUT_BYTES)
        except PeerUnreachable:
            await client.refresh()
            return
        if found is None or found.next_position == position:
            return
        wanted: dict[int, list[str]] = {}
        for each in found.records:
            if "<" not in each.value:  # not the output of a processor
                wanted.setdefault(client.chance.randrange(client.cluster.plan.partitions), []).append(f"<{each.offset}")
        if wanted:
            position = await self._transform(producer, wanted, found.next_position)
            if position is None:
                del self._positions[client.name]
                return
        self._positions[client.name] = found.next_position

    async def _transform(
        self, producer: TransactionalProducer, wanted: dict[int, list[str]], position: int
    ) -> int | None:
        """The new position; None if the transaction was not committed."""
        client = producer.client
        producer.begin()
        fate = client.chance.choice(_FATES)
        self._meet(fate, client)
        is_abortable = False
        try:
            await producer.send(wanted)
            await producer.send_offset(self.group, INPUT, position)
        except Abortable as error:
            client.note(f"must abort: {error}")
            is_abortable = True
        return position if await self._end(producer, fate, is_abortable=is_abortable) else None


class CommittedReader:
    """Reads the committed records of every partition, and looks at the offsets of groups."""

    def __init__(self, client: Client, groups: list[str], rack: str = "") -> None:
        self._client, self._groups, self._rack = client, groups, rack
        self._positions = dict.fromkeys(range(client.cluster.plan.partitions), 0)
        self._chance = Random(f"{client.cluster.seed}/{client.name}/groups")
        self.is_stopping = False

    async def run(self) -> None:
        """Until it is told to stop."""
        client = self._client
        while not self.is_stopping:
            if client.chance.random() < 0.2:
                await client.refresh()
            await self._look()
            await client.pause(20, 120)

    async def _look(self) -> None:
        client = self._client
        try:
            for partition, position in self._positions.items():
                found = await fetch_committed(client, partition, position, self._rack)
                if found is not None:
                    self._positions[partition] = found.next_position
            if self._groups and self._chance.random() < 0.5:
                await committed_offset(client, self._chance.choice(self._groups), INPUT, is_stable=False)
        except PeerUnreachable:
            await client.refresh()

    async def read_all(self, ends: dict[int, int]) -> bool:
        """Reads every partition from its start to these ends; whether that came about."""
        for partition, end in ends.items():
            position = 0
            while position < end:
                try:
                    found = await fetch_committed(self._client, partition, position, self._rack)
                except PeerUnreachable:
                    found = None
                if found is None:
                    await self._client.refresh()
                    await self._client.pause(20, 100)
                else:
                    position = found.next_position
        return True

    async def read_groups(self) -> bool:
        """Reads the offset of every group for the last time; whether that came about."""
        for group in self._groups:
            while True:
                try:
                    if await committed_offset(self._client, group, INPUT, is_final=True) is not None:
                        break
                except PeerUnreachable:
                    pass
                await self._client.pause(50, 100)
        return True
