"""The instances that this broker serves: the dispatcher of each, made at its first connection.

    services.instances ─definition, endpoints─▶ View ◀─ topics that changed ─ MetadataCache
                                                 │
                            Services of the instance ─▶ InstanceDispatcher

An instance's services are the broker's, but for those that would show or touch what is another's. A broker whose
cluster has no instances has no `Tenants`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from headrace.broker.coordinator_host.streams_topics import StreamsTopics
from headrace.broker.fetch.fetch_sessions import FetchSessionCache
from headrace.broker.instances.acls import InstanceAcls
from headrace.broker.instances.dispatch import InstanceDispatcher
from headrace.broker.instances.entity_limits import LimitedEntities, LimitedGroupConfigs, OwnedEntities
from headrace.broker.instances.fields import SERVED
from headrace.broker.instances.member_bytes import MemberBytes
from headrace.broker.instances.policies import POLICIES
from headrace.broker.instances.rules import InstanceAdmission
from headrace.broker.instances.topics import InstanceTopics
from headrace.broker.instances.view import Addresses, View
from headrace.instances.definition import InstanceState
from headrace.instances.names import instance_of
from headrace.limits import FETCH_SESSION_PARTITIONS_OF_INSTANCE_MAX
from headrace.types import ProducerId

if TYPE_CHECKING:
    from headrace.broker.request.dispatch import Handler
    from headrace.broker.services import Services
    from headrace.instances.definition import Instance
    from headrace.metadata.deltas import MetadataDelta

_PRODUCER_IDS_FROM = 1 << 62


class _ProducerIds:
    """Producer ids of instances' clients: random, so that they tell nothing of how many there are, and far above those
    that brokers take from the metadata store one after the other. That two of a billion are the same has a chance of
    one to nine."""

    async def next(self) -> ProducerId:
        """A new one."""
        return ProducerId(_PRODUCER_IDS_FROM | int.from_bytes(os.urandom(8)) >> 2)


class _NoInstances:
    """The instances as the clients of one see them: there are none."""

    def get(self, _name: str) -> None:
        return None


class _Served:
    """One instance with its dispatcher."""

    __slots__ = ("admission", "dispatcher", "view")

    def __init__(self, view: View, admission: InstanceAdmission, dispatcher: InstanceDispatcher) -> None:
        self.view, self.admission, self.dispatcher = view, admission, dispatcher


class Tenants:
    """The instances of this broker's cluster."""

    def __init__(self, services: Services, handlers: Mapping[int, Handler]) -> None:
        """`handlers`: those of the broker's own dispatcher."""
        self._services = services
        self._handlers = {
            int(key): handlers[key].with_demands(POLICIES[key]) if key in POLICIES else handlers[key]
            for key in SERVED
            if key in handlers
        }
        self._served: dict[str, _Served] = {}
        self._topics: dict[str, dict[str, None]] = {}
        self._index(services.metadata.topics)
        self._owned = OwnedEntities(services.entities)
        services.metadata.on_change(self._on_metadata)
        services.instances.on_change(self._on_instance)
        services.instances.on_endpoints(self._on_endpoints)

    def dispatcher(self, name: str) -> InstanceDispatcher | None:
        """The dispatcher of an instance's connections; None for an instance that is not served."""
        served = self._served.get(name)
        if served is None:
            instance = self._services.instances.get(name)
            if instance is None or instance.state is not InstanceState.ACTIVE:
                return None
            served = self._served[name] = self._serve(instance)
        return served.dispatcher

    def view(self, name: str) -> View | None:
        """What an instance is at the moment, if it has been asked for."""
        served = self._served.get(name)
        return None if served is None else served.view

    # -- what changes

    def _on_instance(self, name: str, instance: Instance | None) -> None:
        served = self._served.get(name)
        if served is None:
            return
        if instance is not None and instance.state is InstanceState.ACTIVE and instance.id == served.view.instance.id:
            served.view.change(instance)
            if self._services.authorizer is None:
                served.admission.rules_changed(None)  # the admins may be others
            else:
                served.admission.rules_changed(self._services.authorizer.rules)
            return
        served.view.is_closed = True
        del self._served[name]
        if self._services.authorizer is not None:
            self._services.authorizer.detach(served.admission)

    def _on_endpoints(self, names: Iterable[str]) -> None:
        for name in names:
            served = self._served.get(name)
            if served is not None:
                served.view.metadata.addresses_changed(self._addresses(name))

    def _on_metadata(self, delta: MetadataDelta) -> None:
        for each in delta.topics_deleted:
            self._topics.get(instance_of(each.name), {}).pop(each.name, None)
            served = self._served.get(instance_of(each.name))
            if served is not None:
                served.view.names.had_id(each.id)
                served.view.metadata.topic_changed(each.name)
        for each in delta.topics_created:
            self._index((each.name,))
            served = self._served.get(instance_of(each.name))
            if served is not None:
                served.view.names.has_id(each.id, each.name)
                served.view.metadata.topic_changed(each.name)
        for name in delta.partitions_changed:
            served = self._served.get(instance_of(name))
            if served is not None:
                served.view.metadata.topic_changed(name)

    def _index(self, topics: Iterable[str]) -> None:
        for name in topics:
            instance = instance_of(name)
            if instance:
                self._topics.setdefault(instance, {})[name] = None

    def _addresses(self, name: str) -> Addresses:
        return self._services.instances.endpoints().get(name, {})

    # -- one instance

    def _serve(self, instance: Instance) -> _Served:
        name, services = instance.name, self._services
        known, directories = self._topics.get(name, ()), services.config.log_dirs
        view = View(instance, services.metadata, known, self._addresses(name), directories)
        view.member_bytes = MemberBytes(
            view.names.prefix, lambda: view.instance.member_bytes_max, services.groups.coordinator, services.spawn
        )
        admission, authorizer = InstanceAdmission(view), services.authorizer
        if authorizer is not None:
            authorizer.attach(admission)
        topics: Any = InstanceTopics(view, services)  # has of both services what the handlers use
        producer_ids: Any = _ProducerIds()
        entities = LimitedEntities(services.entities, self._owned, view)
        flow = services.instance_flow()
        throttling: Any = flow.throttling(name)
        served = replace(
            services,
            cluster_id=instance.id,
            metadata=view.metadata,
            instances=cast(Any, _NoInstances()),
            admission=admission,
            throttling=throttling,
            controller=topics,
            topic_creation=topics,
            streams_topics=StreamsTopics(topics, services.spawn, services.now_ms),
            producer_ids=producer_ids,
            transactions=services.transactions.with_producer_ids(producer_ids),
            fetch_sessions=FetchSessionCache(
                services.config.max_incremental_fetch_session_cache_slots,
                _random_session_id,
                partitions_max=FETCH_SESSION_PARTITIONS_OF_INSTANCE_MAX,
            ),
            authorizer=None if authorizer is None else cast(Any, InstanceAcls(authorizer, view)),
            entities=cast(Any, entities),
            group_configs=cast(Any, LimitedGroupConfigs(services.group_configs, entities)),
            served=tuple((key, versions) for key, versions in services.served if key in SERVED),
        )
        return _Served(view, admission, InstanceDispatcher(served, view, self._handlers, flow))


def _random_session_id() -> int:
    return int.from_bytes(os.urandom(4)) >> 1 or 1
