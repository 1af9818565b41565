"""Removes instances that were deleted, while this broker is the controller.

    DELETING    once its grace period has passed, the instance becomes REMOVING; until then it can be brought back
    REMOVING    topics ─▶ groups and transactional ids ─▶ users, quotas and configs ─▶ rules ─▶ the node

Each step looks for what is left, and the node goes last. So a controller that ends in between leaves an instance that
is REMOVING, and the next one goes on. Every live broker is asked whether something is left, so that none still serves
the instance when its name is free, nor has a request under way that would make a topic then. Coordinators remove their
groups and ids; all are gone when a round over the brokers finds none, and each partition of the coordinators' topics
was led by the same broker all the while, as that one says too, and has committed what was written.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace.broker.instances.state_removal import COORDINATED, TIMEOUT_MS, state_on
from headrace.controller.controller_epoch import NotController
from headrace.controller.decisions.instances import begin_removal
from headrace.errors import KafkaError
from headrace.in_slices import in_slices
from headrace.instances.definition import Instance, InstanceState
from headrace.instances.names import Namespace
from headrace.metadata.entity_configs import CLIENT_METRICS, CLIENTS, GROUPS, USERS, desanitize
from headrace.metastore.store import StoreError
from headrace.network.peers.peers import PeerUnreachable
from headrace.security.acls.model import Pattern
from headrace.types import BrokerId, LeaderEpoch, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.services import Services
    from headrace.metadata.stored_acls import Decide

log = logging.getLogger(__name__)

EVERY_S = 1.0
"""How often the broker looks whether it is the controller, a grace period has passed, or a step can go on."""

_Leaders = dict[TopicPartition, tuple[BrokerId, LeaderEpoch]]


class InstanceRemovals:
    """The instances that are to go."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._pending: dict[str, Instance] = {}
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._told: dict[str, str] = {}  # the last thing that was logged about an instance

    def changed(self, name: str, instance: Instance | None) -> None:
        """Takes in a change of an instance."""
        if instance is None or instance.state is InstanceState.ACTIVE:
            self._pending.pop(name, None)
            self._told.pop(name, None)
            return
        self._pending[name] = instance
        self._woken.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stops. The next controller goes on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            if self._services.controller.is_active:
                for instance in list(self._pending.values()):
                    await self._look_at(instance)
            try:
                async with asyncio.timeout(EVERY_S if self._pending else None):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _look_at(self, instance: Instance) -> None:
        try:
            await self._advance(instance)
        except (NotController, PeerUnreachable, StoreError) as error:
            self._tell(instance.name, f"its removal waits: {type(error).__name__} {error}")
        except KafkaError as error:
            self._tell(instance.name, f"its removal waits: {error}")
        except Exception:
            log.exception("the removal of instance %s failed", instance.name)

    async def _advance(self, instance: Instance) -> None:
        services, name, now_ms = self._services, instance.name, self._services.now_ms()
        if instance.state is InstanceState.DELETING:
            if begin_removal(instance, now_ms) is instance:
                return
            guard = services.controller.guard
            after = await services.instances.change(name, lambda each: begin_removal(each, now_ms), guard)
            if after is None or after.state is not InstanceState.REMOVING:
                return  # it was brought back
            log.info("instance %s is removed with its data", name)
        for step in (self._topics_gone, self._state_gone, self._entities_gone, self._rules_gone):
            if not await step(name):
                return
        if await services.controller.topics_with(Namespace(name).prefix):
            return  # an operator's client has made one
        await services.instances.change(name, lambda _: None, services.controller.guard)
        log.info("instance %s is gone", name)

    async def _topics_gone(self, name: str) -> bool:
        controller = self._services.controller
        prefix = Namespace(name).prefix
        topics = await controller.topics_with(prefix)
        if not topics:
            return True
        outcomes = await controller.delete_topics(list(topics), timeout_ms=TIMEOUT_MS)
        refused = next((each for each in outcomes.values() if isinstance(each, KafkaError)), None)
        left = await controller.topics_with(prefix)
        if left:
            why = "replicas on brokers that are down" if refused is None else refused.message
            self._tell(name, f"its removal waits for {len(left)} topics: {why}")
        return not left

    async def _state_gone(self, name: str) -> bool:
        """Removes groups and transactional ids, and lets every live broker hear that topics and instance are gone."""
        before = self._coordinators()
        if before is None:
            self._tell(name, f"its removal waits for leaders of {' and '.join(COORDINATED)}")
            return False
        brokers = {*self._services.metadata.brokers, *(leader for leader, _ in before.values())}
        ids = sorted(brokers)
        answers = dict(
            zip(ids, await asyncio.gather(*(state_on(self._services, each, name) for each in ids)), strict=True)
        )
        if any(each.found for each in answers.values()):
            self._tell(name, "its groups and transactional ids are being removed, and its last requests end")
            self._woken.set()
            await asyncio.sleep(EVERY_S / 10)
            return False
        lacking = [
            f"{key} of broker {leader} in leader epoch {epoch}"
            for key, (leader, epoch) in before.items()
            if answers[leader].coordinated.get(key) != epoch
        ]
        if lacking:
            self._tell(
                name,
                f"its removal waits for {len(lacking)} coordinators that do not lead yet, or have not committed what "
                f"they removed, such as {lacking[0]}: check that min.insync.replicas of these partitions are in sync",
            )
        return not lacking and self._coordinators() == before

    def _coordinators(self) -> _Leaders | None:
        """The leader of each partition of the coordinators' topics; None if one has none."""
        leaders: _Leaders = {}
        for name in COORDINATED:
            topic = self._services.metadata.topic(name)
            for number, each in ({} if topic is None else topic.partitions).items():
                if each.leader < 0:
                    return None
                leaders[TopicPartition(name, number)] = each.leader, each.leader_epoch
        return leaders

    async def _entities_gone(self, name: str) -> bool:
        """Removes users with their tokens, quotas, and configs of groups."""
        entities, names = self._services.entities, Namespace(name)
        for kind in (USERS, CLIENTS, GROUPS, CLIENT_METRICS):
            async for entity in in_slices(list(entities.all(kind))):
                if names.has(desanitize(entity.partition("/")[0])):
                    await entities.rewrite(kind, entity, lambda _: {})
        if (tokens := self._services.delegation_tokens) is not None:
            for token in tokens.all():
                if _is_of(names, token.owner):
                    await tokens.remove(token.id)
        return True

    async def _rules_gone(self, name: str) -> bool:
        """Removes the rules for its resources, and those of its users."""
        authorizer, names = self._services.authorizer, Namespace(name)
        if authorizer is None:
            return True
        changes: dict[Pattern, Decide] = {}
        async for pattern in in_slices(list(authorizer.rules.patterns)):
            if names.has(pattern.name) or _is_of(names, pattern.name):
                changes[pattern] = lambda _: ()
            elif any(_is_of(names, each.principal) for each in authorizer.rules.entries(pattern)):
                changes[pattern] = lambda entries: [each for each in entries if not _is_of(names, each.principal)]
        errors = await authorizer.change(changes)
        for error in errors.values():
            raise error
        return True

    def _tell(self, name: str, what: str) -> None:
        if self._told.get(name) != what:
            self._told[name] = what
            log.info("instance %s: %s", name, what)


def _is_of(names: Namespace, principal: str) -> bool:
    """Whether a principal is a user of the instance."""
    return names.local_principal(principal) not in (None, principal)
