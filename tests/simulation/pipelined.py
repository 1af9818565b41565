"""An idempotent producer with up to five batches of one partition under way at once, as clients have them by default.

After an error everything that is not acknowledged is sent again, in order, under the sequences that it had. A sequence
that the leader does not expect next means that nothing is there to follow on: what may be there already is left alone,
and the producer goes on under another id.
"""

import asyncio
from random import Random

from headrace.errors import ErrorCode
from headrace.network.peers.peers import PeerUnreachable
from tests.simulation.clients import LEADER_ERRORS, NEEDS_NEW_ID, NOT_APPENDED, Client, Producer
from tests.simulation.history import Outcome, Sent

IN_FLIGHT_MAX = 5


class PipelinedProducer(Producer):
    """Sends several batches without waiting for the first one's answer."""

    def __init__(self, client: Client, name: str, *, pace_ms: int) -> None:
        super().__init__(client, name, acks=-1, is_idempotent=True, pace_ms=pace_ms)
        self._misfortune = Random(f"{client.cluster.seed}/{name}/damage")

    async def run(self) -> None:
        """Until it is told to stop."""
        chance = self._client.chance
        while not self.is_stopping:
            partition = chance.randrange(self._client.partitions)
            await self._send_many(partition, [chance.choice((1, 2)) for _ in range(chance.randint(2, IN_FLIGHT_MAX))])
            await self._client.pause(0, 4 * self._pace_ms)

    async def _send_many(self, partition: int, counts: list[int]) -> None:
        left = [_Batch(self._make(partition, count)) for count in counts]
        client, deadline = self._client, self._client.now_us + self.delivery_timeout_us
        self._number(partition, left)
        while left and client.now_us < deadline:
            if self._id is None:
                if not await self._take_id():
                    await client.pause(50, 150)
                    continue
                self._number(partition, left)
            leader = client.leaders.get(partition, (-1, -1))[0]
            if leader < 0:
                await client.refresh()
                await client.pause(20, 200)
                continue
            answers = await asyncio.gather(*(self._try(leader, partition, each) for each in left))
            is_expected = True  # nothing before it failed
            for each, code in zip(list(left), answers, strict=True):
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    left.remove(each)
                    self._end(each.sent, Outcome.ACKNOWLEDGED, each.offset)
                    continue
                if code in NEEDS_NEW_ID and is_expected:
                    self._id = None
                is_expected = False
            if self._id is None and any(each.may_be_there for each in left):
                break
            if any(code in LEADER_ERRORS or code is None for code in answers):
                await client.refresh()
            if left:
                await client.pause(20, 150)
        for each in left:
            self._id = None
            self._end(each.sent, Outcome.UNKNOWN if each.may_be_there else Outcome.REFUSED, -1)

    def _number(self, partition: int, batches: "list[_Batch]") -> None:
        """Gives batches the next sequences."""
        for each in batches:
            each.sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = each.sequence + len(each.sent)

    async def _try(self, leader: int, partition: int, batch: "_Batch") -> ErrorCode | None:
        """The answer to one attempt; None without one."""
        values = [each.value for each in batch.sent]
        try:
            is_damaged = self._misfortune.random() < self._client.cluster.plan.damage
            code, offset = await self._attempt(leader, partition, values, batch.sequence, is_damaged=is_damaged)
        except PeerUnreachable:
            batch.may_be_there = True
            return None
        if code is ErrorCode.NONE:
            batch.offset = offset
        elif code not in NOT_APPENDED:
            batch.may_be_there = True
        return code


class _Batch:
    """A batch on its way."""

    def __init__(self, sent: list[Sent]) -> None:
        self.sent = sent
        self.sequence = 0
        self.offset = -1
        self.may_be_there = False
