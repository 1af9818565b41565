"""Fetches that nobody should send get the same answer, or the same end of their connection, all ways.

Those of consumers and of followers have other bytes somewhere, are cut, or are too long. What each way leaves behind
is the same.
"""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.errors import InvalidRequest
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_request_header, write_request_header
from tests import rotation
from tests.broker.test_plain_fetch import TOPICS, WAYS, Client, Setting, Wanted, counted, masked, request_for, setting
from tests.broker.test_plain_follow import FOLLOWERS, NAMES, Steps, asked, settled, worlds
from tests.simulation.virtual_time import in_virtual_time

__all__ = ["setting"]

CLIENT_ID = "t"
_HEAD, _FLEXIBLE_FROM, _IDS_FROM, _NO_REPLICA_FROM = 11, 12, 13, 15
_BYTES = (0, 1, 2, 3, 0x7F, 0x80, 0xFF)


class Harm(NamedTuple):
    """What is done to a frame: the same to frames of the same size."""

    places: list[tuple[float, int]]
    """Other bytes, at shares of the frame."""
    cut: float
    """The share that is left; 1 for all."""
    more: bytes

    def apply(self, frame: bytes, version: int, *, has_session: bool) -> bytes:
        """The harmed frame. Its API, its time to wait and the id of its session stay as they are: a request of another
        API would do something else, and the ids of the ways differ."""
        wait_at = _HEAD + (version >= _FLEXIBLE_FROM) + (4 if version < _NO_REPLICA_FROM else 0)
        kept = {0, 1, *range(wait_at, wait_at + 4)}
        if has_session:
            kept |= set(range(wait_at + 13, wait_at + 17))
        made = bytearray(frame)
        for share, value in self.places:
            at = int(share * len(made))
            if at not in kept:
                made[at] = value
        return bytes(made[: max(wait_at + 17, int(self.cut * len(made)))]) + self.more


def drawn_harm(chance: random.Random) -> Harm:
    places = [
        (chance.random(), chance.choice((*_BYTES, chance.randrange(256)))) for _ in range(chance.choice((1, 1, 2, 3)))
    ]
    cut = chance.random() if chance.random() < 0.1 else 1.0
    return Harm(places, cut, chance.randbytes(chance.choice((1, 16))) if chance.random() < 0.05 else b"")


def waits(frame: bytes) -> bool:
    """Whether the harmed frame may ask for a long wait, by being read in another version."""
    try:
        header, at = read_request_header(memoryview(frame))
        if header.api_version not in m.FetchRequest.VERSIONS:
            return False
        return m.FetchRequest.decode(header.api_version, memoryview(frame), at)[0].max_wait_ms > 10
    except InvalidRequest:
        return False


class Consumer:
    """The same consumer by each of the ways, with a session."""

    def __init__(self, setting: Setting, chance: random.Random) -> None:
        self.setting, self.chance = setting, chance
        self.clients = {way: Client(setting, way) for way in WAYS}
        self.ids: dict[str, int] = {}
        self.version = 0

    def close(self) -> None:
        for each in self.clients.values():
            each.close()

    def sessions(self) -> list[Any]:
        found = self.setting.dispatcher._services.fetch_sessions
        return [found.get(self.ids.get(way, 0)) for way in WAYS]

    def begin(self) -> None:
        """Begins a session by each of the ways."""
        self.version = self.chance.choice((7, 11, 12, 13, 15, 18))
        everything = [(topic, number) for topic in ("plain", "other") for number in range(TOPICS[topic])]
        parts = [
            (topic, Wanted(partition=number, fetch_offset=0, partition_max_bytes=3_000)) for topic, number in everything
        ]
        request = request_for(self.setting, parts, session_epoch=0, min_bytes=0)
        for way, client in self.clients.items():
            client.session_id = 0
            client.begin_session(request, self.version)
            self.ids[way] = client.session_id

    def request(self, epoch: int) -> m.FetchRequest:
        chance = self.chance
        everything = [(topic, number) for topic in ("plain", "other") for number in range(TOPICS[topic])]
        parts = []
        for topic, number in sorted(chance.sample(everything, chance.choice((1, 1, 2, 4)))):
            most = chance.choice((100, 5_000, 1 << 20))
            offset = chance.choice((0, 1, 20, 119, chance.randrange(300)))
            parts.append((topic, Wanted(partition=number, fetch_offset=offset, partition_max_bytes=most)))
        return request_for(
            self.setting, parts, session_epoch=epoch, min_bytes=chance.choice((0, 1)),
            isolation_level=chance.randrange(2),
        )  # fmt: skip

    def ask(self, harm: Harm) -> list[tuple[bytes, object]]:
        """The answers to a harmed request, with what the broker counts; empty answers if the connection ends."""
        sessions = self.sessions()
        epochs = {None if each is None else each.epoch for each in sessions}
        assert len(epochs) == 1, "the sessions are not in the same epoch"
        in_session = sessions[0] is not None and self.chance.random() < 0.6
        version = self.version if in_session else self.chance.randrange(7, 19)
        request = self.request(sessions[0].epoch if in_session else -1)
        found: list[tuple[bytes, object]] = []
        for way, client in self.clients.items():
            request.session_id = self.ids[way] if in_session else 0
            frame = write_request_header(ApiKey.FETCH, version, 7, CLIENT_ID) + request.encode(version)
            frame = harm.apply(frame, version, has_session=True)
            if waits(frame):
                return []
            before = counted(self.setting)
            client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
            try:
                answer = masked(client.receive(), int.from_bytes(frame[2:4], "big"))
            except (EOFError, ConnectionError):
                answer = b""
                client.close()
                self.clients[way] = Client(self.setting, way)
            now = counted(self.setting)
            found.append(
                (answer, {key: tuple(b - a for a, b in zip(before[key], now[key], strict=True)) for key in now})
            )
        return found

    def noted(self) -> list[Any]:
        """What the sessions know."""
        return [
            each and [(key, one.key, one.wanted, one.high_watermark, one.log_start_offset)
                      for key, one in each.partitions.items()]
            for each in self.sessions()
        ]  # fmt: skip


@pytest.mark.parametrize("number", range(2))
def test_hostile_fetches_of_consumers_are_answered_alike(setting: Setting, number: int) -> None:
    chance = random.Random(rotation.drawn("hostile fetches", number))
    consumer, before, ended = Consumer(setting, chance), setting.taken(), 0
    try:
        for _ in range(200):
            if consumer.sessions()[0] is None:
                consumer.begin()
            found = consumer.ask(harm := drawn_harm(chance))
            assert all(each == found[0] for each in found), (consumer.version, harm, found)
            noted = consumer.noted()
            assert noted[0] == noted[1] == noted[2], harm
            ended += bool(found) and not found[0][0]
    finally:
        consumer.close()
    assert ended, "no frame was refused"
    assert all(now - before[way] > 5 for way, now in setting.taken().items()), "few took the shortest way"


class HostileSteps(Steps):
    """Follower's fetches as in `Steps`, of which many are harmed."""

    async def step(self) -> None:
        if self.chance.random() < 0.7:
            await super().step()
            return
        if self.pending and self.chance.random() < 0.8:
            await asyncio.sleep(1)
            self.check("a wait")
        follower = self.chance.choice(FOLLOWERS)
        if not self.session_epochs[follower]:
            await self.open()
            return
        await self.harmed(follower, drawn_harm(self.chance))
        self.check("a harmed fetch")

    async def harmed(self, follower: int, harm: Harm) -> None:
        chance, version = self.chance, self.chance.choice((15, 16, 17, 18))
        topics = [each for each in chance.sample(NAMES, chance.choice((0, 1, 2))) if self.follows(follower, each)]
        parts = [(topic, self.wanted(follower, topic, False)) for topic in topics]
        self.kinds["harmed"] += 1
        answers = []
        for world in self.worlds:
            request = m.FetchRequest(
                session_id=world.sessions[follower],
                session_epoch=self.session_epochs[follower],
                replica_state=m.FetchRequest.ReplicaState(replica_id=follower, replica_epoch=50 + 10 * follower),
                topics=[asked(topic, each) for topic, each in parts],
                max_wait_ms=40,
                min_bytes=1,
                max_bytes=1 << 20,
            )
            frame = write_request_header(ApiKey.FETCH, version, 9, CLIENT_ID) + request.encode(version)
            answers.append(world.send_frame(follower, harm.apply(frame, version, has_session=True)))
        self.pending.append(((follower, version, harm, parts), answers))
        await settled()
        self.check("a harmed fetch")
        sessions = self.worlds[0].leader.dispatcher._services.fetch_sessions
        session = sessions.get(self.worlds[0].sessions[follower])
        self.session_epochs[follower] = 0 if session is None else session.epoch
        for each in self.told:
            if each[0] == follower:
                self.told[each] = None  # anything: the next fetch that is not harmed asks for all again


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_hostile_fetches_of_followers_are_answered_alike(tmp_path: Path, number: int) -> None:
    kinds: Counter[str] = Counter()
    seed = rotation.drawn("hostile follows", number)
    taken: list[int] = []

    @in_virtual_time
    async def run() -> None:
        async with AsyncExitStack() as stack:
            steps = HostileSteps(seed, await worlds(stack, tmp_path))
            for done in range(3_000):
                await steps.step()
                if done >= 300 and steps.worlds[0].answered > 3:
                    break
            kinds.update(steps.kinds)
            taken.extend(each.answered for each in steps.worlds)

    run()
    assert kinds["harmed"] > 20
    assert taken[0] == taken[1] > 3, "few took the shortest way"
