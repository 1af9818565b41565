"""The nodes of Apache Kafka 3.9 in ZooKeeper: their paths, and the JSON that they hold.

    /cluster/id                             {"version":"1","id":ID}
    /brokers/ids/N                          the registration of a live broker; ephemeral; its czxid is the broker epoch
    /brokers/topics/T                       the topic's id, and the replicas of its partitions
    /brokers/topics/T/partitions/P/state    leader, ISR, leader epoch; its version is the partition epoch
    /brokers/seqid                          generates broker ids
    /controller                             the controller's broker id; ephemeral
    /controller_epoch                       the number of controllers so far; checked by each write of a controller
    /config/{topics,brokers,...}/NAME       configs
    /config/changes/config_change_#         names the entity whose configs changed; sequential
    /admin/delete_topics/T                  marks a topic for deletion
    /isr_change_notification, /log_dir_event_notification    from brokers that do not know AlterPartition
    /latest_producer_id_block               the block of producer ids that was allocated last
    /feature                                finalized features
    /headrace/suspicions/...                 suspicions: which broker saw which refuse connections; ours, ephemeral
    /headrace/fenced/N                      {"version":1,"epoch":E}: broker N in registration E counts as dead; ours

    /headrace/unclean_shutdowns/N           {"version":1,"epoch":E}: broker N, which registered as E after an unclean
                                            shutdown, has left the ISRs that it had to leave; ours
    /headrace/scram_decoys                  a secret: see `scram_users`; ours

Tools that read Kafka's nodes in ZooKeeper can read ours. A test compares them with the bytes of Kafka's own classes.
Source: Kafka's `ZkData.scala`. Others are in `acl_nodes`, `stored_tokens`,
`stored_instances`. Left out: `/migration`.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from headrace.metadata import uuids
from headrace.metadata.model import NO_UUID, Broker, Endpoint, PartitionLeadership, Replicas, Topic
from headrace.types import BrokerId, LeaderEpoch

BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
CONFIG_TOPICS = "/config/topics"
CONFIG_BROKERS = "/config/brokers"
DELETE_TOPICS = "/admin/delete_topics"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
SUSPICIONS = "/headrace/suspicions"
FENCED = "/headrace/fenced"
UNCLEAN_SHUTDOWNS = "/headrace/unclean_shutdowns"
SCRAM_DECOYS = "/headrace/scram_decoys"

PERSISTENT = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    "/isr_change_notification",
    PRODUCER_ID_BLOCK,
    "/log_dir_event_notification",
    CONFIG_TOPICS,
    "/config/clients",
    "/config/users",
    CONFIG_BROKERS,
    "/config/ips",
    "/cluster",
)
"""The nodes that every broker creates at its start if they are missing."""


def broker(broker_id: int) -> str:
    """A broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """A topic's assignment."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, number: int) -> str:
    """Parent of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{number}"


def partition_state(name: str, number: int) -> str:
    """A partition's leader and ISR."""
    return f"{TOPICS}/{name}/partitions/{number}/state"


def config(entity_type: str, name: str) -> str:
    """The configs of one entity; `entity_configs.TYPES` are the types."""
    return f"/config/{entity_type}/{name}"


def delete_topic(name: str) -> str:
    """The mark on a topic that is to be deleted."""
    return f"{DELETE_TOPICS}/{name}"


def suspicion(name: str) -> str:
    """One broker's suspicion of another; `fencing.Suspicion.name` is the name."""
    return f"{SUSPICIONS}/{name}"


def fenced(broker_id: int) -> str:
    """The mark on a broker that counts as dead although it is registered."""
    return f"{FENCED}/{broker_id}"


def unclean_shutdown(broker_id: int) -> str:
    """The note that a broker's unclean shutdown was handled."""
    return f"{UNCLEAN_SHUTDOWNS}/{broker_id}"


class CorruptNode(ValueError):
    """A node's content is not what Kafka writes there."""


_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def dump_json(value: object) -> bytes:
    """The JSON of a node, as Apache Kafka writes it: without spaces."""
    return _to_json(value).encode()


def load_object(data: bytes) -> dict[str, object]:
    """The JSON object in a node. Raises `CorruptNode`."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise CorruptNode(f"the data is not JSON: {data[:200]!r}") from None
    if not isinstance(value, dict):
        raise CorruptNode(f"the data is not a JSON object: {data[:200]!r}")
    return value


def as_text(value: object) -> str:
    """A value that must be a string, and one that UTF-8 can express. Raises `CorruptNode`."""
    if not isinstance(value, str):
        raise CorruptNode(f"{value!r:.200} is not a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape
            raise CorruptNode(f"{value!r:.200} is not text") from None
    return value


def as_number(value: object) -> int:
    """A value that must be an integer. Raises `CorruptNode`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise CorruptNode(f"{value!r} is not a number")
    return value


def _digits(value: object) -> int:
    if not (isinstance(value, str) and value.isascii() and value.isdigit()):
        raise CorruptNode(f"{value!r:.200} is not a number in digits")
    return int(value)


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise CorruptNode(f"{value!r:.200} is not an object")
    return value


def _ids(value: object) -> tuple[BrokerId, ...]:
    if not isinstance(value, list):
        raise CorruptNode(f"{value!r} is not a list of broker ids")
    if {*map(type, value)} != {int}:
        for each in value:
            as_number(each)
    return tuple(value)


# /brokers/ids/N


def encode_broker(broker: Broker, now_ms: int) -> bytes:
    """Version 5. `host` and `port` are those of the first PLAINTEXT endpoint, for readers that predate listeners.

    The field `headrace` is ours, for a broker that names its data directory. Other readers ignore it.
    """
    plain = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
    fencing = {"supports_fencing": True} if broker.supports_fencing else {}
    min_isr = {} if broker.min_insync_replicas == 1 else {"min_insync_replicas": broker.min_insync_replicas}
    own = {"headrace": {"clean": broker.is_clean, "directory": broker.directory, **fencing, **min_isr}}
    return dump_json(
        {
            "features": {},
            "listener_security_protocol_map": {e.listener: e.security_protocol for e in broker.endpoints},
            "endpoints": [str(e) for e in broker.endpoints],
            **({} if broker.rack is None else {"rack": broker.rack}),
            "jmx_port": -1,
            "port": plain.port if plain else -1,
            "host": plain.host if plain else None,
            "version": 5,
            "timestamp": str(now_ms),
            **({} if broker.directory is None else own),
        }
    )


def decode_broker(broker_id: int, data: bytes, epoch: int) -> Broker:
    """Versions 1 to 5; `epoch` is the node's czxid. Raises `CorruptNode`."""
    value = load_object(data)
    protocols = _object(value.get("listener_security_protocol_map", {}))
    if as_number(value.get("version")) == 1:
        urls: object = [f"PLAINTEXT://{value.get('host')}:{value.get('port')}"]
    else:
        urls = value.get("endpoints")
    if not isinstance(urls, list):
        raise CorruptNode(f"broker {broker_id} has no endpoints")
    endpoints = tuple(_decode_endpoint(as_text(url), protocols) for url in urls)
    rack = value.get("rack")
    own = _object(value.get("headrace", {}))
    directory = own.get("directory")
    return Broker(
        BrokerId(broker_id),
        endpoints,
        None if rack is None else as_text(rack),
        epoch,
        is_clean=own.get("clean") is not False,
        directory=None if directory is None else as_text(directory),
        supports_fencing=own.get("supports_fencing") is True,
        min_insync_replicas=as_number(own.get("min_insync_replicas", 1)),
    )


def _decode_endpoint(url: str, protocols: Mapping[str, object]) -> Endpoint:
    listener, _, address = url.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(listener, host.strip("[]"), _digits(port), as_text(protocols.get(listener, listener)))


# /brokers/topics/T and the partitions' states


def encode_topic(topic: Topic) -> bytes:
    """Version 3."""
    partitions = topic.partitions.items()
    return dump_json(
        {
            "partitions": {str(number): list(each.replicas) for number, each in partitions},
            "topic_id": uuids.to_text(topic.id),
            "adding_replicas": {str(number): list(each.adding) for number, each in partitions if each.adding},
            "removing_replicas": {str(number): list(each.removing) for number, each in partitions if each.removing},
            "version": 3,
        }
    )


def decode_topic(name: str, data: bytes) -> Topic:
    """Versions 1 to 3; the id is `NO_UUID` before 3. Raises `CorruptNode`."""
    value = load_object(data)
    adding = _object(value.get("adding_replicas", {}))
    removing = _object(value.get("removing_replicas", {}))
    found = {
        _digits(p): Replicas(_ids(replicas), _ids(adding.get(p, [])), _ids(removing.get(p, [])))
        if adding or removing
        else Replicas(_ids(replicas))
        for p, replicas in _object(value.get("partitions")).items()
    }
    text = value.get("topic_id")
    try:
        topic_id = NO_UUID if text is None else uuids.from_text(as_text(text))
    except ValueError as error:
        raise CorruptNode(str(error)) from None
    return Topic(name, topic_id, dict(sorted(found.items())))


def encode_leadership(state: PartitionLeadership) -> bytes:
    """Version 1. `leader_recovery_state` is present, and 1, only after an unclean election.

    The field `eligible_leader_replicas` is ours, and present only if there are any. An Apache Kafka controller ignores
    it, and drops it with its next write of the state.
    """
    leader, leader_epoch, isr, controller_epoch, _, _, is_recovering, eligible = state
    return _leadership_text(controller_epoch, leader, leader_epoch, isr, is_recovering, eligible)


@lru_cache(maxsize=10_000)
def _leadership_text(
    controller_epoch: int,
    leader: BrokerId,
    leader_epoch: LeaderEpoch,
    isr: tuple[BrokerId, ...],
    is_recovering: bool,
    eligible: tuple[BrokerId, ...],
) -> bytes:
    """A controller writes tens of thousands of states at once, many of them the same."""
    recovery = ',"leader_recovery_state":1' if is_recovering else ""
    more = f',"eligible_leader_replicas":[{",".join(map(str, eligible))}]' if eligible else ""
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{leader},"version":1,'
        f'"leader_epoch":{leader_epoch},"isr":[{",".join(map(str, isr))}]{recovery}{more}}}'
    ).encode()


_PLAIN_LEADERSHIP = re.compile(
    rb'\{"controller_epoch":(0|[1-9]\d{0,9}),"leader":(-1|0|[1-9]\d{0,9}),"version":1,'
    rb'"leader_epoch":(0|[1-9]\d{0,9}),"isr":\[((?:0|[1-9]\d{0,9})(?:,(?:0|[1-9]\d{0,9}))*)\]\}'
)
"""The bytes that Apache Kafka and headrace write where no election was unclean and no replica is eligible. A new
controller reads tens of thousands of them."""


@lru_cache(maxsize=10_000)
def _plain_leadership(data: bytes) -> tuple[BrokerId, LeaderEpoch, tuple[BrokerId, ...], int] | None:
    """(leader, leader epoch, ISR, controller epoch) in plain bytes; None for others. Many partitions have the same."""
    plain = _PLAIN_LEADERSHIP.fullmatch(data)
    if plain is None:
        return None
    controller_epoch, leader, leader_epoch, isr = plain.groups()
    members = tuple(BrokerId(int(each)) for each in isr.split(b","))
    return BrokerId(int(leader)), LeaderEpoch(int(leader_epoch)), members, int(controller_epoch)


def decode_leadership(data: bytes, version: int, mzxid: int) -> PartitionLeadership:
    """`version` and `mzxid` are the node's. Raises `CorruptNode`."""
    plain = _plain_leadership(data)
    if plain is not None:
        return PartitionLeadership(*plain, version, mzxid)
    value = load_object(data)
    return PartitionLeadership(
        leader=BrokerId(as_number(value.get("leader"))),
        leader_epoch=LeaderEpoch(as_number(value.get("leader_epoch"))),
        isr=_ids(value.get("isr")),
        controller_epoch=as_number(value.get("controller_epoch")),
        partition_epoch=version,
        mzxid=mzxid,
        is_recovering=bool(value.get("leader_recovery_state", 0)),
        eligible=_ids(value.get("eligible_leader_replicas", [])),
    )


# The controller


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    """Version 2, with a KRaft controller epoch of -1: none."""
    return dump_json({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> BrokerId:
    """The controller's broker id. Raises `CorruptNode`."""
    return BrokerId(as_number(load_object(data).get("brokerid")))


def encode_epoch(epoch: int) -> bytes:
    """A number in decimal digits."""
    return str(epoch).encode()


def decode_epoch(data: bytes) -> int:
    """The inverse of `encode_epoch`. Raises `CorruptNode`."""
    if not data.isdigit():
        raise CorruptNode(f"{data!r} is not an epoch")
    return int(data)


def encode_fenced(epoch: int) -> bytes:
    """Version 1; also for `unclean_shutdown`. `epoch` is the broker epoch of the registration that is meant."""
    return dump_json({"version": 1, "epoch": epoch})


def decode_fenced(data: bytes) -> int:
    """The inverse of `encode_fenced`. Raises `CorruptNode`."""
    return as_number(load_object(data).get("epoch"))


# Configs


def encode_config(settings: Mapping[str, str]) -> bytes:
    """Version 1."""
    return dump_json({"version": 1, "config": dict(settings)})


def decode_config(data: bytes) -> dict[str, str]:
    """Configs by name. Raises `CorruptNode`."""
    if not data:
        return {}
    return {as_text(name): as_text(text) for name, text in _object(load_object(data).get("config", {})).items()}


def encode_config_change(entity_type: str, name: str) -> bytes:
    """Version 2."""
    return dump_json({"version": 2, "entity_path": f"{entity_type}/{name}"})


def decode_config_change(data: bytes) -> tuple[str, str]:
    """(entity type, name), of versions 1 and 2. Version 1 is of tools before 0.9, for topics and clients only.
    Raises `CorruptNode`."""
    value = load_object(data)
    if value.get("version") == 1:
        return as_text(value.get("entity_type")), as_text(value.get("entity_name"))
    entity_type, slash, name = as_text(value.get("entity_path")).partition("/")
    if not (slash and name):
        raise CorruptNode(f"{value!r} does not name an entity")
    return entity_type, name


# Ids


def encode_cluster_id(cluster_id: str) -> bytes:
    """Version "1", a string here."""
    return dump_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """The 22 characters. Raises `CorruptNode`."""
    return as_text(load_object(data).get("id"))


class ProducerIdBlock(NamedTuple):
    """Producer ids that one broker may allocate; both ends inclusive."""

    broker_id: BrokerId
    first: int
    last: int


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """Version 1, the ends as strings."""
    first, last = str(block.first), str(block.last)
    return dump_json({"version": 1, "broker": block.broker_id, "block_start": first, "block_end": last})


def decode_producer_ids(data: bytes) -> ProducerIdBlock:
    """The inverse of `encode_producer_ids`. Raises `CorruptNode`."""
    value = load_object(data)
    broker_id = BrokerId(as_number(value.get("broker")))
    return ProducerIdBlock(broker_id, _digits(value.get("block_start")), _digits(value.get("block_end")))


def encode_feature() -> bytes:
    """Version 2, enabled, with no finalized feature, as a 3.9 broker writes it."""
    return dump_json({"features": {}, "version": 2, "status": 1})
