"""Instances: decides whether one may be created, altered or deleted, and what it is afterwards. Pure.

    create    a name that is free, brokers that are live, a port that is free on them; topics that have its names
              already are taken over only if the request says so (`adopt`)
    alter     limits not below what there is, and brokers that hold all its partitions, unless it says `force`;
              `"state": "active"` brings back an instance that is DELETING
    delete    an instance without topics; with topics only if it says `with_data`, after a grace period (`grace_ms`).
              An instance that is DELETING may be deleted again, with another grace period

The requests are JSON objects: the fields of an `Instance`, and the words above.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from headrace.errors import ErrorCode, InvalidConfig, KafkaError
from headrace.instances.address_list import is_address
from headrace.instances.definition import Instance, InstanceState
from headrace.metadata.model import Broker, Topic
from headrace.types import BrokerId

GRACE_MS_DEFAULT = 24 * 3600 * 1000
"""How long an instance that is deleted with its data can be brought back."""
GRACE_MS_MAX = 3650 * 24 * 3600 * 1000
_OWN = ("state", "deleted_at_ms")
"""Fields that requests do not set."""

Document = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Contents:
    """What an instance holds."""

    topics: int = 0
    partitions: int = 0
    brokers: frozenset[BrokerId] = frozenset()
    """The brokers with replicas of its partitions."""
    example: str = ""
    """One of its topics."""
    stored: int | None = None
    """The bytes that count towards its capacity; None where nobody counts them, as without a capacity."""


@dataclass(frozen=True, slots=True)
class InstancesView:
    """What a decision goes by."""

    instances: Collection[Instance]
    brokers: Mapping[BrokerId, Broker]
    """The live brokers."""
    now_ms: int
    can_delete_topics: bool = True
    """Whether `delete.topic.enable` is set."""


def contents_of(topics: Iterable[Topic], stored: int | None = None) -> Contents:
    """What an instance with these topics holds."""
    count = partitions = 0
    brokers: set[BrokerId] = set()
    example = ""
    for topic in topics:
        count, partitions, example = count + 1, partitions + len(topic.partitions), topic.name
        for each in topic.partitions.values():
            brokers.update(each.replicas)
    return Contents(count, partitions, frozenset(brokers), example, stored)


def plan_creation(name: str, new_id: str, document: Document, contents: Contents, view: InstancesView) -> Instance:
    """The new instance. `contents` are the topics that have its names. Raises `KafkaError`."""
    changes, adopt = _without(document, "adopt")
    for each in _OWN:
        if each in changes:
            raise InvalidConfig(f"{each} of an instance is not set when it is created")
    made = Instance(name, new_id, created_ms=view.now_ms).altered(changes)
    for known in view.instances:
        if known.name == name:
            what = "exists" if known.state is InstanceState.ACTIVE else "is being deleted, and its name is not free yet"
            raise KafkaError(f"an instance called {name} {what}", ErrorCode.DUPLICATE_RESOURCE)
    if contents.topics and not adopt:
        raise _refused(
            f"{contents.topics} topics such as {contents.example} have names of instance {name}: delete them, or let "
            "the instance adopt them"
        )
    _check_brokers(made, made.brokers, view)
    _check_ports(made, view)
    return made


def plan_change(before: Instance, document: Document, contents: Contents, view: InstancesView) -> Instance:
    """The instance after an alteration. Raises `KafkaError`."""
    changes, force = _without(document, "force")
    if "deleted_at_ms" in changes:
        raise InvalidConfig("deleted_at_ms of an instance is not altered: delete it again with another grace period")
    restores = changes.pop("state", None)
    if restores not in (None, InstanceState.ACTIVE.value):
        raise InvalidConfig(f"the state of an instance is altered to 'active' only, not to {restores!r:.100}")
    _refuse_removing(before)
    if before.state is InstanceState.DELETING and not restores:
        raise _refused(f"instance {before.name} is being deleted: bring it back first, by its state")
    after = before.altered(changes)
    if restores:
        after = replace(after, state=InstanceState.ACTIVE, deleted_at_ms=None)
    if not force:
        _check_limits(before, after, contents)
    _check_brokers(after, set(after.brokers) - set(before.brokers), view)
    _check_ports(after, view)
    return after


def plan_deletion(before: Instance, document: Document, contents: Contents, view: InstancesView) -> Instance:
    """The instance that is to go. Raises `KafkaError`."""
    asked, with_data = _without(document, "with_data")
    grace_ms = asked.pop("grace_ms", None)
    if asked:
        raise InvalidConfig(f"a deletion has no {next(iter(asked))!r:.100}: it has with_data, grace_ms")
    if grace_ms is None:
        grace_ms = GRACE_MS_DEFAULT if contents.topics else 0
    if not isinstance(grace_ms, int) or isinstance(grace_ms, bool) or not 0 <= grace_ms <= GRACE_MS_MAX:
        raise InvalidConfig(f"grace_ms cannot be {grace_ms!r:.100}: it is 0 to {GRACE_MS_MAX}")
    _refuse_removing(before)
    if contents.topics and not with_data:
        raise _refused(
            f"instance {before.name} has {contents.topics} topics, such as {contents.example}: delete them, or delete "
            "the instance with its data"
        )
    if contents.topics and not view.can_delete_topics:
        raise KafkaError(
            f"instance {before.name} has topics, and delete.topic.enable is false", ErrorCode.TOPIC_DELETION_DISABLED
        )
    return replace(before, state=InstanceState.DELETING, deleted_at_ms=view.now_ms + grace_ms)


def begin_removal(instance: Instance, now_ms: int) -> Instance:
    """The instance once its grace period has passed; the same before, and if it was brought back."""
    if instance.state is InstanceState.DELETING and (instance.deleted_at_ms or 0) <= now_ms:
        return replace(instance, state=InstanceState.REMOVING)
    return instance


def _without(document: Document, word: str) -> tuple[dict[str, object], bool]:
    """A copy without one word, and whether that is true. Raises `InvalidConfig`."""
    changes = dict(document)
    said = changes.pop(word, False)
    if not isinstance(said, bool):
        raise InvalidConfig(f"{word} cannot be {said!r:.100}: it is true or false")
    return changes, said


def _refused(what: str) -> KafkaError:
    return KafkaError(what, ErrorCode.POLICY_VIOLATION)


def _refuse_removing(instance: Instance) -> None:
    if instance.state is InstanceState.REMOVING:
        raise _refused(f"the data of instance {instance.name} is being removed: it cannot be brought back")


def _check_limits(before: Instance, after: Instance, contents: Contents) -> None:
    for name, used, what in (
        ("topics_max", contents.topics, "topics"),
        ("partitions_max", contents.partitions, "partitions"),
        ("capacity", contents.stored, "bytes"),
    ):
        limit = getattr(after, name)
        if limit is not None and used is not None and limit < used and limit != getattr(before, name):
            raise _refused(f"{name} of instance {after.name} cannot be {limit}: it has {used} {what}, unless forced")
    left = contents.brokers - set(after.brokers)
    if after.brokers and after.brokers != before.brokers and left:
        raise _refused(
            f"brokers of instance {after.name} cannot be {_listed(after.brokers)}: its partitions are on brokers "
            f"{_listed(contents.brokers)}; move them first, unless forced"
        )


def _check_brokers(instance: Instance, new: Iterable[int], view: InstancesView) -> None:
    unknown = [each for each in new if BrokerId(each) not in view.brokers]
    if unknown:
        raise InvalidConfig(
            f"brokers of instance {instance.name} cannot be {_listed(unknown)}: the live brokers are "
            f"{_listed(view.brokers)}"
        )


class _Bound(NamedTuple):
    """What an instance's own listener binds on a broker."""

    host: str
    """Empty for the host of the broker's own listener."""
    port: int
    """0 for any free one."""

    def meets(self, other: "_Bound") -> bool:
        """Whether both cannot be bound on one broker."""
        return self.port == other.port != 0 and (self.host == other.host or not self.host or not other.host)


def _bound(instance: Instance, broker: Broker) -> _Bound | None:
    if instance.port is None or instance.state is not InstanceState.ACTIVE:
        return None
    for each in instance.addresses:
        number, _, address = each.partition("=")
        if int(number) == broker.id:
            host, _, port = address.rpartition(":")
            host = host.strip("[]")
            return _Bound(host if is_address(host) else "", instance.port or int(port))
    return _Bound("", instance.port)


def _check_ports(instance: Instance, view: InstancesView) -> None:
    """No port is used twice on one broker, whichever brokers hold the partitions: not by another instance, nor by a
    listener of the broker. Nor by two brokers of one host, such as the workers of one supervisor."""
    hosts: dict[frozenset[str], BrokerId] = {}
    for broker in view.brokers.values():
        bound = _bound(instance, broker)
        if bound is None or not bound.port:
            continue
        refusal = f"instance {instance.name} cannot have port {bound.port}: "
        for endpoint in broker.endpoints:
            if endpoint.port == bound.port:
                raise InvalidConfig(f"{refusal}listener {endpoint.listener} of broker {broker.id} has it")
        for other in view.instances:
            theirs = None if other.name == instance.name else _bound(other, broker)
            if theirs is not None and bound.meets(theirs):
                raise InvalidConfig(f"{refusal}instance {other.name} has it")
        if any(each.startswith(f"{broker.id}=") for each in instance.addresses):
            continue
        neighbour = hosts.setdefault(frozenset(each.host for each in broker.endpoints), broker.id)
        if neighbour != broker.id:
            raise InvalidConfig(
                f"{refusal}brokers {neighbour} and {broker.id} are on one host; leave the port to the system, or give "
                "each an address ID=HOST:PORT"
            )


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "none"
