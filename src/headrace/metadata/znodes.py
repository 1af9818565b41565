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

Tools that read Kafka's nodes in ZooKeeper can read ours. A test compares them with the bytes of Kafka's own classes.
Source: Kafka's `ZkData.scala`. Left out: `/kafka-acl*`, delegation tokens, `/migration`.
"""

import json
from collections.abc import Mapping
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
    """The configs of one `topics`, `brokers`, `clients`, `users` or `ips` entity."""
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


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _load(data: bytes) -> dict[str, object]:
    try:
        value = json.loads(data)
    except ValueError:
        raise CorruptNode(f"the data is not JSON: {data[:200]!r}") from None
    if not isinstance(value, dict):
        raise CorruptNode(f"the data is not a JSON object: {data[:200]!r}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise CorruptNode(f"{value!r} is not a string")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise CorruptNode(f"{value!r} is not a number")
    return value


def _digits(value: object) -> int:
    text = _text(value)
    if not (text.isascii() and text.isdigit()):
        raise CorruptNode(f"{value!r} is not a number in digits")
    return int(text)


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise CorruptNode(f"{value!r} is not an object")
    return value


def _ids(value: object) -> tuple[BrokerId, ...]:
    if not isinstance(value, list):
        raise CorruptNode(f"{value!r} is not a list of broker ids")
    return tuple(BrokerId(_number(each)) for each in value)


# /brokers/ids/N


def encode_broker(broker: Broker, now_ms: int) -> bytes:
    """Version 5. `host` and `port` are those of the first PLAINTEXT endpoint, for readers that predate listeners.

    The field `headrace` is ours, for a broker that names its data directory. Other readers ignore it.
    """
    plain = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
    fencing = {"supports_fencing": True} if broker.supports_fencing else {}
    own = {"headrace": {"clean": broker.is_clean, "directory": broker.directory, **fencing}}
    return _dump(
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
    value = _load(data)
    protocols = _object(value.get("listener_security_protocol_map", {}))
    if _number(value.get("version")) == 1:
        urls: object = [f"PLAINTEXT://{value.get('host')}:{value.get('port')}"]
    else:
        urls = value.get("endpoints")
    if not isinstance(urls, list):
        raise CorruptNode(f"broker {broker_id} has no endpoints")
    endpoints = tuple(_decode_endpoint(_text(url), protocols) for url in urls)
    rack = value.get("rack")
    own = _object(value.get("headrace", {}))
    directory = own.get("directory")
    return Broker(
        BrokerId(broker_id),
        endpoints,
        None if rack is None else _text(rack),
        epoch,
        is_clean=own.get("clean") is not False,
        directory=None if directory is None else _text(directory),
        supports_fencing=own.get("supports_fencing") is True,
    )


def _decode_endpoint(url: str, protocols: Mapping[str, object]) -> Endpoint:
    listener, _, address = url.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(listener, host.strip("[]"), _digits(port), _text(protocols.get(listener, listener)))


# /brokers/topics/T and the partitions' states


def encode_topic(topic: Topic) -> bytes:
    """Version 3."""
    partitions = topic.partitions.items()
    return _dump(
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
    value = _load(data)
    adding = _object(value.get("adding_replicas", {}))
    removing = _object(value.get("removing_replicas", {}))
    found = {
        _digits(p): Replicas(_ids(replicas), _ids(adding.get(p, [])), _ids(removing.get(p, [])))
        for p, replicas in _object(value.get("partitions")).items()
    }
    text = value.get("topic_id")
    try:
        topic_id = NO_UUID if text is None else uuids.from_text(_text(text))
    except ValueError as error:
        raise CorruptNode(str(error)) from None
    return Topic(name, topic_id, dict(sorted(found.items())))


def encode_leadership(state: PartitionLeadership) -> bytes:
    """Version 1. `leader_recovery_state` is present, and 1, only after an unclean election."""
    value: dict[str, object] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.is_recovering:
        value["leader_recovery_state"] = 1
    return _dump(value)


def decode_leadership(data: bytes, version: int, mzxid: int) -> PartitionLeadership:
    """`version` and `mzxid` are the node's. Raises `CorruptNode`."""
    value = _load(data)
    return PartitionLeadership(
        leader=BrokerId(_number(value.get("leader"))),
        leader_epoch=LeaderEpoch(_number(value.get("leader_epoch"))),
        isr=_ids(value.get("isr")),
        controller_epoch=_number(value.get("controller_epoch")),
        partition_epoch=version,
        mzxid=mzxid,
        is_recovering=bool(value.get("leader_recovery_state", 0)),
    )


# The controller


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    """Version 2, with a KRaft controller epoch of -1: none."""
    return _dump({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> BrokerId:
    """The controller's broker id. Raises `CorruptNode`."""
    return BrokerId(_number(_load(data).get("brokerid")))


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
    return _dump({"version": 1, "epoch": epoch})


def decode_fenced(data: bytes) -> int:
    """The inverse of `encode_fenced`. Raises `CorruptNode`."""
    return _number(_load(data).get("epoch"))


# Configs


def encode_config(settings: Mapping[str, str]) -> bytes:
    """Version 1."""
    return _dump({"version": 1, "config": dict(settings)})


def decode_config(data: bytes) -> dict[str, str]:
    """Configs by name. Raises `CorruptNode`."""
    return {name: _text(text) for name, text in _object(_load(data).get("config", {})).items()} if data else {}


def encode_config_change(entity_type: str, name: str) -> bytes:
    """Version 2."""
    return _dump({"version": 2, "entity_path": f"{entity_type}/{name}"})


def decode_config_change(data: bytes) -> tuple[str, str]:
    """(entity type, name). Raises `CorruptNode`."""
    entity_type, _, name = _text(_load(data).get("entity_path")).partition("/")
    return entity_type, name


# Ids


def encode_cluster_id(cluster_id: str) -> bytes:
    """Version "1", a string here."""
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """The 22 characters. Raises `CorruptNode`."""
    return _text(_load(data).get("id"))


class ProducerIdBlock(NamedTuple):
    """Producer ids that one broker may allocate; both ends inclusive."""

    broker_id: BrokerId
    first: int
    last: int


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """Version 1, the ends as strings."""
    first, last = str(block.first), str(block.last)
    return _dump({"version": 1, "broker": block.broker_id, "block_start": first, "block_end": last})


def decode_producer_ids(data: bytes) -> ProducerIdBlock:
    """The inverse of `encode_producer_ids`. Raises `CorruptNode`."""
    value = _load(data)
    broker_id = BrokerId(_number(value.get("broker")))
    return ProducerIdBlock(broker_id, _digits(value.get("block_start")), _digits(value.get("block_end")))


def encode_feature() -> bytes:
    """Version 2, enabled, with no finalized feature, as a 3.9 broker writes it."""
    return _dump({"features": {}, "version": 2, "status": 1})
