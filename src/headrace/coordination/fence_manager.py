"""Fencing in one term, and taking over from a controller that is dead: reads sightings, decides, writes.

judge       every sighting, by `coordination.fencing`; whom it convicts is marked, in a multi that checks the
            controller epoch and that the sightings still stand
take over   one multi: the sightings stand, /controller is still the dead one's (which the version of
            /controller_epoch says, since every new controller raises it), it goes, and this broker's is there
"""

import logging
from collections.abc import Callable, Sequence

from headrace.coordination import paths
from headrace.coordination.configs import TopicConfigs
from headrace.coordination.fencing import (
    Budget,
    Sighting,
    all_know_marks,
    is_confirmed,
    parse_sighting,
    without_successor,
    witnesses,
)
from headrace.coordination.loading import load_brokers
from headrace.coordination.model import Broker
from headrace.coordination.term import Term
from headrace.coordination.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Op,
    Set,
    Tree,
    Watch,
)
from headrace.types import BrokerId

log = logging.getLogger(__name__)


class Fences:
    """What one broker does about brokers that are gone, as controller or to become it."""

    def __init__(
        self, tree: Tree, own: BrokerId, configs: TopicConfigs, now_s: Callable[[], float], budget: Budget | None = None
    ) -> None:
        self._tree, self._own, self._configs, self._now_s = tree, own, configs, now_s
        self._budget = budget or Budget()
        self._spared: dict[BrokerId, int] = {}  # and in which epoch: so that each is logged once

    async def sightings(self, watch: Watch) -> list[Sighting]:
        """All that there are; `watch` fires when one comes or goes."""
        names = await self._tree.children(paths.SIGHTINGS, watch)
        return [found for name in names if (found := parse_sighting(name)) is not None]

    async def judge(self, term: Term, watch: Watch) -> set[BrokerId]:
        """Marks whom it must; they are left in the term's state. Raises `NotController`."""
        seen = await self.sightings(watch)
        fenced: set[BrokerId] = set()
        for broker in list(term.state.brokers.values()):
            live = {number: each for number, each in term.state.brokers.items() if number not in fenced}
            proof = witnesses(broker, seen, live)
            if not is_confirmed(proof, self._own) or broker.id in term.state.shutting_down:
                continue
            objection = await self._objection(term, broker)
            if objection is not None:
                if self._spared.get(broker.id) != broker.epoch:
                    self._spared[broker.id] = broker.epoch
                    log.warning("broker %d refuses connections, and is not fenced: %s", broker.id, objection)
            elif await self._mark(term, broker, proof):
                fenced.add(broker.id)
        return fenced

    async def _objection(self, term: Term, broker: Broker) -> str | None:
        state = term.state
        if not broker.heeds_fencing:
            return "its headrace.fencing.enable is off"
        if not all_know_marks(state.brokers):
            return "there are brokers of Apache Kafka's or an older version, which do not know of fencing"
        led, alone = without_successor(state, broker.id)
        if led and len(alone) == led:
            return "nobody else is in the ISR of what it leads"
        topics = dict.fromkeys(partition.topic for partition in alone)
        await self._configs.load(topics)
        if any(self._configs.get(topic).unclean_leader_election_enable for topic in topics):
            return "the ISR would be left where it leads alone: unclean.leader.election.enable"
        if not self._budget.take(self._now_s()):
            return "too many brokers were fenced in the last minute"
        return None

    async def _mark(self, term: Term, broker: Broker, proof: Sequence[Sighting]) -> bool:
        path, data = paths.fenced(broker.id), paths.encode_fenced(broker.epoch)
        old = await self._tree.exists(path)
        mark: Op = Create(path, data) if old is None else Set(path, data, old.version)
        try:
            await term.write([*_standing(proof), mark])
        except (NoNode, NodeExists, BadVersion) as error:
            log.info("broker %d is not fenced after all: %s changed", broker.id, error.path)
            return False
        others = sorted({each.observer for each in proof} - {self._own})
        log.warning("broker %d (epoch %d) is fenced: it refuses this broker and %s", broker.id, broker.epoch, others)
        return True

    # Taking over from a dead controller

    async def takeover(self, dead: BrokerId, watch: Watch, stand: Create) -> tuple[int, list[Op]] | None:
        """(the epoch, the multi whose last operation counts it) by which this broker takes the office of one that is
        dead, or None: it is not known to be dead, or gone already."""
        seen = await self.sightings(watch)
        if not any(each.broker == dead and each.observer == self._own for each in seen):
            return None
        brokers = await load_brokers(self._tree)
        broker = brokers.get(dead)
        if broker is None or not broker.heeds_fencing or not all_know_marks(brokers):
            return None
        proof = witnesses(broker, seen, brokers)
        if not is_confirmed(proof, self._own):
            return None
        office, epoch, registration = await self._tree.get_many(
            [paths.CONTROLLER, paths.CONTROLLER_EPOCH, paths.broker(dead)]
        )
        if epoch is None or office is None or not _is_of(office, dead, registration, broker):
            return None
        if not self._budget.take(self._now_s()):
            return None
        log.warning("broker %d, the controller, refuses connections: this broker takes over", dead)
        number = 1 + paths.decode_epoch(epoch.data)
        count = Set(paths.CONTROLLER_EPOCH, paths.encode_epoch(number), epoch.version)
        return number, [*_standing(proof), Delete(paths.CONTROLLER, office.version), stand, count]


def _is_of(office: Node, dead: BrokerId, registration: Node | None, broker: Broker) -> bool:
    """Whether `/controller` was made in the session of that very registration."""
    return (
        registration is not None
        and registration.czxid == broker.epoch
        and registration.ephemeral_owner == office.ephemeral_owner
        and paths.decode_controller(office.data) == dead
    )


def _standing(proof: Sequence[Sighting]) -> list[Op]:
    return [Check(paths.sighting(each.name)) for each in proof]
