"""Topics that an instance's clients create: their number, their place and their retention.

    topics_max, partitions_max      POLICY_VIOLATION. What other requests to this broker are making counts; two
                                    requests at two brokers at the same moment may both pass
    retention_ms_*, retention_bytes_max    POLICY_VIOLATION for a value outside; without a value the bound, if the
                                    broker's default is outside. With a retention_ms_max also for a cleanup.policy
                                    without delete, and for a message.timestamp.after.max.ms above what
                                    `config.topic_bounds` has, which holds in any case
    file.delete.delay.ms            at most the broker's default: the files take up space that nobody counts
    segments and their indexes      not smaller than `_LEAST` has it, unless the broker's default is: each segment is
                                    several open files of the broker, and a few bytes of a client would make one
    headrace.lake, .kafka07.enable  the operator's: they have a program of the operator write where the topic says, and
                                    let clients in that pass the instance's listeners and limits by
    brokers                         replicas are put on these; an assignment that names another broker is refused as
                                    one that names a broker that does not exist

The controller may be a broker that the instance's clients cannot reach. So every broker passes their requests on, and
repeats them while there is none. `Services.topic_requests` counts those under way: an instance whose name is free must
not get a topic of the one before. Once the instance is not served any more, none is begun or repeated. One that is
still on its way then names the instance by its id, and the controller refuses it (`request.forwarded`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.broker.request.forwarded import forwarded_for
from headrace.config.topic_bounds import DELETE
from headrace.controller.controller_epoch import NotController
from headrace.controller.decisions.add_partitions import NewPartitions
from headrace.controller.decisions.assignment import assign_replicas
from headrace.controller.decisions.topics import RequestedTopic, TopicOutcome, validate_name
from headrace.errors import ErrorCode, InvalidRequest, KafkaError, known_code
from headrace.limits import INSTANCE_VALUE_CHARS_MAX, PARTITIONS_PER_TOPIC_MAX
from headrace.protocol import messages as m
from headrace.types import BrokerId

if TYPE_CHECKING:
    from headrace.broker.instances.view import View
    from headrace.broker.services import Services
    from headrace.config.topic import TopicConfig

RETENTION_MS, RETENTION_BYTES, DELETE_DELAY_MS = "retention.ms", "retention.bytes", "file.delete.delay.ms"
AFTER_MAX_MS, CLEANUP_POLICY = "message.timestamp.after.max.ms", "cleanup.policy"
BOUNDED: Mapping[str, str] = {
    name: name.replace(".", "_")
    for name in (
        RETENTION_MS, RETENTION_BYTES, DELETE_DELAY_MS, AFTER_MAX_MS, "segment.bytes", "segment.ms",
        "segment.index.bytes", "index.interval.bytes", "max.compaction.lag.ms",
    )
}  # fmt: skip
"""The settings of a topic that have bounds, with their names in `TopicConfig`."""
_LEAST = {
    "segment.bytes": 1 << 20,
    "segment.ms": 60_000,
    "segment.index.bytes": 16 << 10,
    "index.interval.bytes": 1 << 10,
    "max.compaction.lag.ms": 60_000,
}
"""With these an index has room for all entries of the smallest segment."""
OPERATORS = {"headrace.lake": "", "headrace.kafka07.enable": "false"}
"""The settings of a topic that are the operator's, with the value that says nothing."""
_WAIT_MS = 30_000
_KNOWN_WITHIN_MS = 10_000
_FOR_EVER = -1
_UNSET = -1


def setting_error(view: View, defaults: TopicConfig, name: str, value: int) -> str | None:
    """Why a topic of the instance may not have a value of a config; None if it may."""
    instance = view.instance
    low, high = {
        RETENTION_MS: (instance.retention_ms_min, instance.retention_ms_max),
        RETENTION_BYTES: (None, instance.retention_bytes_max),
        DELETE_DELAY_MS: (None, defaults.file_delete_delay_ms),
        AFTER_MAX_MS: (None, instance.topic_bounds.after_max_ms(defaults)),
    }.get(name, (None, None))
    if name in _LEAST:
        low = min(_LEAST[name], getattr(defaults, BOUNDED[name]))
    is_for_ever = value == _FOR_EVER
    if high is not None and (is_for_ever or value > high):
        return f"{name} of {'-1, for ever,' if is_for_ever else value} is above what this cluster allows: {high}"
    if low is not None and not is_for_ever and value < low:
        return f"{name} of {value} is below what this cluster allows: {low}"
    return None


def operators_error(name: str, value: str | None) -> str | None:
    """Why a topic of an instance may not have a value of a config, if that is the operator's; None if it may."""
    harmless = OPERATORS.get(name)
    if harmless is None or value is None or value.strip().lower() == harmless:
        return None
    return f"{name} is set by the operator of this cluster only"


def value_error(name: str, value: str | None) -> str | None:
    """Why a topic of an instance may not have a value of a config, if that is too long; None if it may."""
    if value is None or len(value) <= INSTANCE_VALUE_CHARS_MAX:
        return None
    return f"the value of {name:.100} has {len(value)} characters, of at most {INSTANCE_VALUE_CHARS_MAX} here"


def cleanup_error(view: View, policies: str) -> str | None:
    """Why a topic of the instance may not have a `cleanup.policy`; None if it may."""
    most = view.instance.retention_ms_max
    if most is None or DELETE in (each.strip() for each in policies.split(",")):
        return None
    return (
        f"{CLEANUP_POLICY} of {policies:.100} keeps records for ever, and this cluster allows {most} ms: use {DELETE}, "
        f"or compact,{DELETE}"
    )


class _Making:
    """Topics that a request makes or grows, and the partitions that they will have."""

    __slots__ = ("counts", "until_ms")

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = counts
        self.until_ms: int | None = None  # while the request is under way


class InstanceTopics:
    """Creates topics and partitions for an instance's clients; in place of `Controller` and of `TopicCreation`."""

    def __init__(self, view: View, services: Services) -> None:
        """`services`: those of the broker."""
        self._view, self._services = view, services
        self._client_id = forwarded_for(view.instance.name, view.instance.id)
        self._making: list[_Making] = []

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._services.controller.is_active

    async def make(self, topics: Sequence[RequestedTopic]) -> Mapping[str, KafkaError | None]:
        """Creates topics; returns the outcome of each by name, None for success."""
        wanted, refused = self._planned(topics)
        making = self._begin({each.name: self._partitions_of(each) for each in wanted})
        made: Mapping[str, KafkaError | None] = {}
        try:
            with self._under_way():
                made = (
                    await self._services.topic_creation.make(wanted, self._is_wanted, self._client_id) if wanted else {}
                )
        finally:
            self._end(making, [name for name, error in made.items() if error is None])
        return {**made, **refused}

    async def create_topics(
        self, requests: Sequence[RequestedTopic], *, validate_only: bool = False, timeout_ms: int = _WAIT_MS
    ) -> dict[str, TopicOutcome | KafkaError]:
        """As `Controller.create_topics`."""
        wanted, refused = self._planned(requests)
        made: dict[str, TopicOutcome | KafkaError] = {}
        making = self._begin({} if validate_only else {each.name: self._partitions_of(each) for each in wanted})
        try:
            if wanted:
                with self._under_way():
                    made = await self._create(wanted, validate_only, timeout_ms)
        finally:
            self._end(making, [name for name, found in made.items() if not isinstance(found, KafkaError)])
        return {**made, **refused}

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False, timeout_ms: int = _WAIT_MS
    ) -> dict[str, KafkaError | None]:
        """As `Controller.create_partitions`."""
        outcomes: dict[str, KafkaError | None] = {}
        wanted: list[NewPartitions] = []
        added = 0
        for each in requests:
            topic = self._view.metadata.topic(each.name)
            count = len(topic.partitions) if topic is not None else each.num_partitions
            try:
                _check_count(each.num_partitions)
                if topic is not None and each.num_partitions > count:
                    self._check_partitions(added + each.num_partitions - count)
                    added += each.num_partitions - count
                    each = self._placed_partitions(each, count, len(topic.partitions[0].replicas))
                wanted.append(each)
            except KafkaError as error:
                outcomes[each.name] = error
        making = self._begin({} if validate_only else {each.name: each.num_partitions for each in wanted})
        try:
            if wanted:
                with self._under_way():
                    outcomes |= await self._grow(wanted, validate_only, timeout_ms)
        finally:
            self._end(making, [name for name, error in outcomes.items() if error is None])
        return outcomes

    async def delete_topics(
        self, names: Sequence[str], *, timeout_ms: int = _WAIT_MS
    ) -> dict[str, TopicOutcome | KafkaError]:
        """As `Controller.delete_topics`."""
        for making in self._making:
            if making.until_ms is not None:
                making.counts = {name: count for name, count in making.counts.items() if name not in names}
        with self._under_way():
            try:
                return await self._services.controller.delete_topics(names, timeout_ms=timeout_ms)
            except NotController:
                return await self._delete_elsewhere(names, timeout_ms)

    # -- until the instance is gone

    def _is_wanted(self) -> bool:
        return not self._view.is_closed

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """Counts a request for as long as it may change topics. Raises `InvalidRequest` if the instance is not served
        any more."""
        name, counts = self._view.instance.name, self._services.topic_requests
        if self._view.is_closed:
            raise InvalidRequest(f"instance {name} is gone")
        counts[name] += 1
        try:
            yield
        finally:
            counts[name] -= 1
            if not counts[name]:
                del counts[name]

    # -- requests to the controller, on this broker or on another

    async def _create(
        self, topics: Sequence[RequestedTopic], validate_only: bool, timeout_ms: int
    ) -> dict[str, TopicOutcome | KafkaError]:
        try:
            return await self._services.controller.create_topics(
                topics, validate_only=validate_only, timeout_ms=timeout_ms
            )
        except NotController:
            return await self._create_elsewhere(topics, validate_only, timeout_ms)

    async def _grow(
        self, wanted: Sequence[NewPartitions], validate_only: bool, timeout_ms: int
    ) -> dict[str, KafkaError | None]:
        try:
            return await self._services.controller.create_partitions(
                wanted, validate_only=validate_only, timeout_ms=timeout_ms
            )
        except NotController:
            return await self._grow_elsewhere(wanted, validate_only, timeout_ms)

    async def _delete_elsewhere(self, names: Sequence[str], timeout_ms: int) -> dict[str, TopicOutcome | KafkaError]:
        partitions = {name: self._view.metadata.topic(name) for name in names}
        request = m.DeleteTopicsRequest(
            topics=[m.DeleteTopicsRequest.DeleteTopicState(name=each) for each in names], timeout_ms=timeout_ms
        )
        answer = await self._services.replication.link.send(
            request,
            m.DeleteTopicsResponse,
            timeout_ms=timeout_ms,
            is_refused=lambda found: _is_refused(found.responses),
            is_wanted=self._is_wanted,
            client_id=self._client_id,
        )
        return {
            each.name: _error(each)
            or TopicOutcome(each.topic_id, len(known.partitions) if (known := partitions[each.name]) else 0, 0)
            for each in answer.responses
            if each.name is not None
        }

    # -- limits

    def _begin(self, counts: Mapping[str, int]) -> _Making:
        """Topics are being made, or will have so many partitions. They count from now on."""
        making = _Making(counts)
        if counts:
            self._making.append(making)
        return making

    def _end(self, making: _Making, made: Sequence[str]) -> None:
        """What was made counts until the metadata has it; the rest counts no longer."""
        making.counts = {name: making.counts[name] for name in made if name in making.counts}
        making.until_ms = self._services.now_ms() + _KNOWN_WITHIN_MS

    def _unknown(self) -> tuple[int, int]:
        """The topics and partitions that are being made, beside those in the metadata."""
        now_ms, topics, partitions, left = self._services.now_ms(), 0, 0, []
        for making in self._making:
            if making.until_ms is not None and now_ms > making.until_ms:
                continue
            before = partitions
            for name, count in making.counts.items():
                topic = self._view.metadata.topic(name)
                topics += topic is None
                partitions += max(0, count - (0 if topic is None else len(topic.partitions)))
            if partitions > before or making.until_ms is None:
                left.append(making)
        self._making = left
        return topics, partitions

    def _planned(self, topics: Sequence[RequestedTopic]) -> tuple[list[RequestedTopic], dict[str, KafkaError]]:
        """The topics as the controller is to make them, and the refusals."""
        wanted: list[RequestedTopic] = []
        refused: dict[str, KafkaError] = {}
        partitions = 0
        for each in topics:
            try:
                validate_name(self._view.names.namespace.local(each.name) or "")
                if self._view.metadata.topic(each.name) is None:
                    self._check_topics(len(wanted) + 1)
                    count = self._partitions_of(each)
                    _check_count(count)
                    partitions += count
                    self._check_partitions(partitions)
                    each = self._placed(self._retained(each))
                wanted.append(each)
            except KafkaError as error:
                refused[each.name] = error
        return wanted, refused

    def _partitions_of(self, topic: RequestedTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        return topic.num_partitions if topic.num_partitions != _UNSET else self._services.config.num_partitions

    def _check_topics(self, more: int) -> None:
        most = self._view.instance.topics_max
        if most is not None and len(self._view.metadata.topics) + self._unknown()[0] + more > most:
            raise _policy(f"no more than {most} topics are allowed here: delete one, or ask for a higher limit")

    def _check_partitions(self, more: int) -> None:
        most = self._view.instance.partitions_max
        if most is None:
            return
        count = sum(len(each.partitions) for each in self._view.metadata.topics.values()) + self._unknown()[1]
        if count + more > most:
            raise _policy(f"no more than {most} partitions are allowed here, and there are {count}")

    def _retained(self, topic: RequestedTopic) -> RequestedTopic:
        """The topic with configs that are within the bounds. Raises POLICY_VIOLATION."""
        defaults, instance = self._services.settings.current.topic_defaults, self._view.instance
        configs = dict(topic.configs)
        most = {RETENTION_MS: instance.retention_ms_max, RETENTION_BYTES: instance.retention_bytes_max}
        for name, given in configs.items():
            if why := value_error(name, given):
                raise _policy(why)
        for name in OPERATORS:
            if why := operators_error(name, configs.get(name)):
                raise _policy(why)
        policies = configs.get(CLEANUP_POLICY)
        if policies is not None and (why := cleanup_error(self._view, policies)):
            raise _policy(why)
        for name, attribute in BOUNDED.items():
            value, default, high = _number(configs.get(name)), getattr(defaults, attribute), most.get(name)
            if value is None and configs.get(name) is None:
                if name == AFTER_MAX_MS or not setting_error(self._view, defaults, name, default):
                    continue
                bound = high if default == _FOR_EVER or (high is not None and default > high) else None
                configs[name] = str(instance.retention_ms_min if bound is None else bound)
            elif value is not None and (why := setting_error(self._view, defaults, name, value)):
                raise _policy(why)
        return replace(topic, configs=configs)

    def _placed(self, topic: RequestedTopic) -> RequestedTopic:
        """The topic with an assignment to the instance's brokers. Raises `KafkaError`."""
        for partition, replicas in topic.assignments.items():
            self._check_replicas(partition, replicas)
        if topic.assignments or not self._view.instance.brokers:
            return topic
        factor = topic.replication_factor
        assignments = assign_replicas(
            self._racks(),
            self._partitions_of(topic),
            self._services.config.default_replication_factor if factor == _UNSET else factor,
            start_index=_random_start(),
        )
        return replace(topic, num_partitions=_UNSET, replication_factor=_UNSET, assignments=assignments)

    def _placed_partitions(self, wanted: NewPartitions, count: int, factor: int) -> NewPartitions:
        for number, replicas in enumerate(wanted.assignments or (), count):
            self._check_replicas(number, replicas)
        if wanted.assignments is not None or not self._view.instance.brokers:
            return wanted
        more = wanted.num_partitions - count
        made = assign_replicas(self._racks(), more, factor, start_index=_random_start(), start_partition=count)
        return wanted._replace(assignments=[made[count + number] for number in range(more)])

    def _racks(self) -> dict[BrokerId, str | None]:
        """The live brokers on which the instance's replicas may be, with their racks."""
        live = self._services.metadata.brokers
        return {BrokerId(each): live[BrokerId(each)].rack for each in self._view.instance.brokers if each in live}

    def _check_replicas(self, partition: int, replicas: Sequence[BrokerId]) -> None:
        allowed = self._view.instance.brokers or self._view.metadata.brokers
        for each in replicas:
            if each not in allowed:
                message = f"Partition {partition} names broker {each}, which is not registered"
                raise KafkaError(message, ErrorCode.INVALID_REPLICA_ASSIGNMENT)

    async def _create_elsewhere(
        self, topics: Sequence[RequestedTopic], validate_only: bool, timeout_ms: int
    ) -> dict[str, TopicOutcome | KafkaError]:
        creatable = m.CreateTopicsRequest.CreatableTopic
        request = m.CreateTopicsRequest(
            topics=[
                creatable(
                    name=each.name,
                    num_partitions=each.num_partitions,
                    replication_factor=each.replication_factor,
                    assignments=[
                        m.CreateTopicsRequest.CreatableReplicaAssignment(
                            partition_index=number, broker_ids=list(replicas)
                        )
                        for number, replicas in each.assignments.items()
                    ],
                    configs=[
                        m.CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                        for name, value in each.configs.items()
                    ],
                )
                for each in topics
            ],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )
        answer = await self._services.replication.link.send(
            request,
            m.CreateTopicsResponse,
            timeout_ms=timeout_ms,
            is_refused=lambda found: _is_refused(found.topics),
            is_wanted=self._is_wanted,
            client_id=self._client_id,
        )
        return {
            each.name: _error(each) or TopicOutcome(each.topic_id, each.num_partitions, each.replication_factor)
            for each in answer.topics
        }

    async def _grow_elsewhere(
        self, wanted: Sequence[NewPartitions], validate_only: bool, timeout_ms: int
    ) -> dict[str, KafkaError | None]:
        grown = m.CreatePartitionsRequest.CreatePartitionsTopic
        placed = m.CreatePartitionsRequest.CreatePartitionsAssignment
        request = m.CreatePartitionsRequest(
            topics=[
                grown(
                    name=each.name,
                    count=each.num_partitions,
                    assignments=None
                    if each.assignments is None
                    else [placed(broker_ids=list(replicas)) for replicas in each.assignments],
                )
                for each in wanted
            ],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )
        answer = await self._services.replication.link.send(
            request,
            m.CreatePartitionsResponse,
            timeout_ms=timeout_ms,
            is_refused=lambda found: _is_refused(found.results),
            is_wanted=self._is_wanted,
            client_id=self._client_id,
        )
        return {each.name: _error(each) for each in answer.results}


def _policy(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.POLICY_VIOLATION)


def _check_count(count: int) -> None:
    """Raises INVALID_PARTITIONS for a number of partitions that the controller refuses. A negative one must not make
    room for others, nor a large one be placed."""
    if count <= 0:
        raise KafkaError("Number of partitions must be larger than 0.", ErrorCode.INVALID_PARTITIONS)
    if count > PARTITIONS_PER_TOPIC_MAX:
        message = f"Number of partitions {count} is above the limit of {PARTITIONS_PER_TOPIC_MAX}."
        raise KafkaError(message, ErrorCode.INVALID_PARTITIONS)


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None  # the controller refuses it


def _random_start() -> int:
    return int.from_bytes(os.urandom(4))


def _is_refused(results: Sequence[m.CreateTopicsResponse.CreatableTopicResult] | Sequence[object]) -> bool:
    return any(getattr(each, "error_code", 0) == ErrorCode.NOT_CONTROLLER for each in results)


def _error(result: object) -> KafkaError | None:
    code = getattr(result, "error_code", 0)
    return KafkaError(getattr(result, "error_message", None) or "", known_code(code)) if code else None
