"""Fencing: reads suspicions, fences brokers that are confirmed dead, and replaces a controller that is dead.

judge       decides on every suspicion by `controller.decisions.fencing`, and marks a broker as fenced in a multi that
            checks the controller epoch and that the suspicions still exist
take over   one multi checks that the suspicions still exist and that /controller is still that of the dead broker (by
            the version of /controller_epoch, which every new controller raises), and replaces /controller
"""

import logging
from collections.abc import Callable, Sequence

from headrace.controller.controller_epoch import ControllerEpoch
from headrace.controller.decisions.fencing import (
    Budget,
    Suspicion,
    all_know_marks,
    is_confirmed,
    parse_suspicion,
    suspects,
    without_successor,
    witnesses,
)
from headrace.controller.loading import load_brokers
from headrace.metadata import znodes
from headrace.metadata.model import Broker
from headrace.metadata.topic_configs import TopicConfigs
from headrace.metastore.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeExists,
    NoNode,
    Op,
    Set,
    Watch,
)
from headrace.types import BrokerId

log = logging.getLogger(__name__)


class Fences:
    """Fences dead brokers as controller, and takes over from a dead controller."""

    def __init__(
        self,
        store: MetadataStore,
        own: BrokerId,
        configs: TopicConfigs,
        now_s: Callable[[], float],
        budget: Budget | None = None,
    ) -> None:
        self._store, self._own, self._configs, self._now_s = store, own, configs, now_s
        self._budget = budget or Budget()
        self._spared: dict[BrokerId, int] = {}  # with the broker epoch, so that each registration is logged once

    async def suspicions(self, watch: Watch) -> list[Suspicion]:
        """Every suspicion. `watch` fires when one is added or removed."""
        names = await self._store.children(znodes.SUSPICIONS, watch)
        return [found for name in names if (found := parse_suspicion(name)) is not None]

    async def judge(self, controller_epoch: ControllerEpoch, watch: Watch) -> set[BrokerId]:
        """Marks the brokers to fence, and returns them; the caller removes them from the state. Raises
        `NotController`."""
        seen = await self.suspicions(watch)
        fenced: set[BrokerId] = set()
        suspected: set[BrokerId] = set()
        for broker in list(controller_epoch.state.brokers.values()):
            live = {number: each for number, each in controller_epoch.state.brokers.items() if number not in fenced}
            proof = witnesses(broker, seen, live)
            if suspects(self._own, proof):
                suspected.add(broker.id)
            if not is_confirmed(proof, self._own) or broker.id in controller_epoch.state.shutting_down:
                continue
            objection = await self._objection(controller_epoch, broker)
            if objection is not None:
                if self._spared.get(broker.id) != broker.epoch:
                    self._spared[broker.id] = broker.epoch
                    log.warning("broker %d refuses connections but is not fenced: %s", broker.id, objection)
            elif await self._mark(controller_epoch, broker, proof):
                fenced.add(broker.id)
        controller_epoch.state.suspected = suspected - fenced
        return fenced

    async def _objection(self, controller_epoch: ControllerEpoch, broker: Broker) -> str | None:
        state = controller_epoch.state
        if not broker.supports_fencing:
            return "its headrace.fencing.enable is false"
        if not all_know_marks(state.brokers):
            return "a live broker is an Apache Kafka broker or an older version, which ignores fencing marks"
        led, alone = without_successor(state, broker.id)
        if led and len(alone) == led:
            return "no other broker is in the ISR of any partition that it leads"
        topics = dict.fromkeys(partition.topic for partition in alone)
        await self._configs.load(topics)
        if any(self._configs.get(topic).unclean_leader_election_enable for topic in topics):
            return "unclean.leader.election.enable is true for a partition whose ISR is this broker alone"
        if not self._budget.take(self._now_s()):
            return "too many brokers were fenced in the last minute; it is considered dead when its session ends"
        return None

    async def _mark(self, controller_epoch: ControllerEpoch, broker: Broker, proof: Sequence[Suspicion]) -> bool:
        path, data = znodes.fenced(broker.id), znodes.encode_fenced(broker.epoch)
        old = await self._store.exists(path)
        mark: Op = Create(path, data) if old is None else Set(path, data, old.version)
        try:
            await controller_epoch.write([*_standing(proof), mark])
        except (NoNode, NodeExists, BadVersion) as error:
            log.info("broker %d is not fenced, because %s changed meanwhile", broker.id, error.path)
            return False
        others = sorted({each.observer for each in proof} - {self._own})
        log.warning(
            "broker %d (broker epoch %d) is fenced: it refuses connections of this broker and of brokers %s",
            broker.id,
            broker.epoch,
            others,
        )
        return True

    # Taking over from a dead controller

    async def takeover(self, dead: BrokerId, watch: Watch, stand: Create) -> tuple[int, list[Op]] | None:
        """(the new controller epoch, the multi that replaces the dead controller and ends with the write of that
        epoch); None if the controller is not confirmed dead, or was replaced already."""
        seen = await self.suspicions(watch)
        if not any(each.broker == dead and each.observer == self._own for each in seen):
            return None
        brokers = await load_brokers(self._store)
        broker = brokers.get(dead)
        if broker is None or not broker.supports_fencing or not all_know_marks(brokers):
            return None
        proof = witnesses(broker, seen, brokers)
        if not is_confirmed(proof, self._own):
            return None
        controller_node, epoch, registration = await self._store.get_many(
            [znodes.CONTROLLER, znodes.CONTROLLER_EPOCH, znodes.broker(dead)]
        )
        if epoch is None or controller_node is None or not _is_of(controller_node, dead, registration, broker):
            return None
        if not self._budget.take(self._now_s()):
            return None
        log.warning("controller %d refuses connections, and broker %d takes over as controller", dead, self._own)
        number = 1 + znodes.decode_epoch(epoch.data)
        count = Set(znodes.CONTROLLER_EPOCH, znodes.encode_epoch(number), epoch.version)
        return number, [*_standing(proof), Delete(znodes.CONTROLLER, controller_node.version), stand, count]


def _is_of(controller_node: Node, dead: BrokerId, registration: Node | None, broker: Broker) -> bool:
    """Whether the session that made this registration also created /controller."""
    return (
        registration is not None
        and registration.czxid == broker.epoch
        and registration.ephemeral_owner == controller_node.ephemeral_owner
        and znodes.decode_controller(controller_node.data) == dead
    )


def _standing(proof: Sequence[Suspicion]) -> list[Op]:
    return [Check(znodes.suspicion(each.name)) for each in proof]
