"""Converts the records of a KRaft metadata log into the tree that Kafka 3.9 keeps in ZooKeeper. Pure.

    Topic, RemoveTopic, ImagePartition, PartitionChange, ClearElr   topics and who leads them
    Config                                                     settings of topics and brokers
    ProducerIds                                                the next block
    RegisterBroker, UnregisterBroker                           which brokers there are
    FeatureLevel                                               named, not kept: a ZooKeeper cluster has none of them
    AccessControlEntry, RemoveAccessControlEntry               who may do what
    UserScramCredential, ClientQuota, DelegationToken, and their removals: counted, not kept

A partition without ISR (KIP-966) has those who are eligible to lead as its ISR here, or its only replica: they have all
that was committed. Source: Kafka's TopicsDelta, PartitionRegistration, ConfigurationsDelta, ZkMigrationClient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.errors import KafkaError
from headrace.metadata import znodes
from headrace.metadata.model import PartitionLeadership, Replicas, Topic
from headrace.metadata.producer_ids import BLOCK_SIZE
from headrace.migrate.acls import has_node, nodes_of
from headrace.migrate.metadata_log import MetadataLog, MetadataRecord
from headrace.migrate.nodes import DEFAULT_BROKER, Nodes, counted
from headrace.migrate.refusal import MigrationRefused
from headrace.protocol import messages as m
from headrace.types import BrokerId, LeaderEpoch, TopicPartition

NO_CHANGE = -2
TOPIC, BROKER = 2, 4
"""Kinds of a setting's owner."""

ZK_MIGRATION_RUNS = (1, 2)

_IGNORED = {7, 8, 17, 20, 27}  # fenced, unfenced, changed registration, no-op, a controller's registration


@dataclass(slots=True)
class ImagePartition:
    """One partition after the last record."""

    replicas: list[int]
    isr: list[int]
    adding: list[int]
    removing: list[int]
    leader: int
    leader_epoch: int
    is_recovering: bool
    eligible: list[int]


@dataclass(slots=True)
class MetadataImage:
    """The cluster after the last record."""

    topics: dict[bytes, str] = field(default_factory=dict)
    partitions: dict[tuple[bytes, int], ImagePartition] = field(default_factory=dict)
    settings: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    brokers: set[int] = field(default_factory=set)
    next_producer_id: int = 0
    features: dict[str, int] = field(default_factory=dict)
    is_migrating_zookeeper: bool = False
    acls: dict[bytes, m.AccessControlEntryRecord] = field(default_factory=dict)
    scram: set[tuple[str, int]] = field(default_factory=set)
    quotas: set[tuple[object, ...]] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)

    def apply(self, records: Sequence[MetadataRecord]) -> MetadataImage:
        """Applies records in their order. Raises MigrationRefused for an unknown record."""
        for record in records:
            try:
                self._apply(record)
            except (KafkaError, KeyError) as error:
                raise MigrationRefused(
                    f"a metadata record of kind {record.kind}, version {record.version} cannot be understood "
                    f"({error}): the log is damaged, or this Kafka is newer than 4.3"
                ) from error
        return self

    def _apply(self, record: MetadataRecord) -> None:
        version, body = record.version, record.body
        match record.kind:
            case 0:
                self.brokers.add(m.RegisterBrokerRecord.decode(version, body)[0].broker_id)
            case 1:
                self.brokers.discard(m.UnregisterBrokerRecord.decode(version, body)[0].broker_id)
            case 2:
                topic = m.TopicRecord.decode(version, body)[0]
                self.topics[topic.topic_id] = topic.name
            case 3:
                self._partition(m.PartitionRecord.decode(version, body)[0])
            case 4:
                self._setting(m.ConfigRecord.decode(version, body)[0])
            case 5:
                self._change(m.PartitionChangeRecord.decode(version, body)[0])
            case 9:
                self._remove_topic(m.RemoveTopicRecord.decode(version, body)[0].topic_id)
            case 12:
                feature = m.FeatureLevelRecord.decode(version, body)[0]
                self.features[feature.name] = feature.feature_level
            case 15:
                self.next_producer_id = m.ProducerIdsRecord.decode(version, body)[0].next_producer_id
            case 18:
                rule = m.AccessControlEntryRecord.decode(version, body)[0]
                self.acls[rule.id] = rule
            case 19:
                self.acls.pop(m.RemoveAccessControlEntryRecord.decode(version, body)[0].id, None)
            case 21:
                state = m.ZkMigrationStateRecord.decode(version, body)[0].zk_migration_state
                self.is_migrating_zookeeper = state in ZK_MIGRATION_RUNS
            case 28:
                self._clear_eligible(m.ClearElrRecord.decode(version, body)[0].topic_name)
            case kind if kind not in _IGNORED:
                self._count(kind, version, body)

    # Topics

    def _partition(self, record: m.PartitionRecord) -> None:
        self.topics[record.topic_id]  # KeyError: a partition of no topic
        self.partitions[record.topic_id, record.partition_id] = ImagePartition(
            record.replicas,
            record.isr,
            record.adding_replicas,
            record.removing_replicas,
            record.leader,
            record.leader_epoch,
            bool(record.leader_recovery_state),
            record.eligible_leader_replicas or [],
        )

    def _change(self, record: m.PartitionChangeRecord) -> None:
        partition = self.partitions[record.topic_id, record.partition_id]
        if record.isr is not None:
            partition.isr = record.isr
        if record.replicas is not None:
            partition.replicas = record.replicas
        if record.adding_replicas is not None:
            partition.adding = record.adding_replicas
        if record.removing_replicas is not None:
            partition.removing = record.removing_replicas
        if record.eligible_leader_replicas is not None:
            partition.eligible = record.eligible_leader_replicas
        if record.leader != NO_CHANGE:
            partition.leader = record.leader
            partition.leader_epoch += 1
        if record.leader_recovery_state >= 0:
            partition.is_recovering = bool(record.leader_recovery_state)

    def _remove_topic(self, topic_id: bytes) -> None:
        name = self.topics.pop(topic_id)
        self.settings.pop((TOPIC, name), None)
        for key in [key for key in self.partitions if key[0] == topic_id]:
            del self.partitions[key]

    def _clear_eligible(self, topic_name: str) -> None:
        """Clear the eligible leaders of one topic, or of all topics if no name is given."""
        for (topic_id, _), partition in self.partitions.items():
            if not topic_name or self.topics[topic_id] == topic_name:
                partition.eligible = []

    def _setting(self, record: m.ConfigRecord) -> None:
        own = self.settings.setdefault((record.resource_type, record.resource_name), {})
        if record.value is None:
            own.pop(record.name, None)
        else:
            own[record.name] = record.value

    # What is counted only

    def _count(self, kind: int, version: int, body: memoryview) -> None:
        match kind:
            case 11:
                made = m.UserScramCredentialRecord.decode(version, body)[0]
                self.scram.add((made.name, made.mechanism))
            case 22:
                gone = m.RemoveUserScramCredentialRecord.decode(version, body)[0]
                self.scram.discard((gone.name, gone.mechanism))
            case 14:
                quota = m.ClientQuotaRecord.decode(version, body)[0]
                key = (*sorted((each.entity_type, each.entity_name or "") for each in quota.entity), quota.key)
                (self.quotas.discard if quota.remove else self.quotas.add)(key)
            case 10:
                self.tokens.add(m.DelegationTokenRecord.decode(version, body)[0].token_id)
            case 26:
                self.tokens.discard(m.RemoveDelegationTokenRecord.decode(version, body)[0].token_id)
            case _:
                raise KafkaError("the record type is unknown")

    def left_behind(self) -> list[str]:
        """The records that are not kept, by kind."""
        other = sum(map(len, (own for (kind, _), own in self.settings.items() if kind not in (TOPIC, BROKER))))
        return [
            *counted(
                {
                    "ACLs whose name has a /": (sum(not has_node(each) for each in self.acls.values()), "entry"),
                    "SCRAM credentials": (len(self.scram), "credential"),
                    "quotas": (len(self.quotas), "quota"),
                    "delegation tokens": (len(self.tokens), "token"),
                    "settings of groups and of client metrics": (other, "setting"),
                }
            ),
            *([f"finalized features ({_levels(self.features)})"] if self.features else []),
        ]


def _levels(features: dict[str, int]) -> str:
    return ", ".join(f"{name}={level}" for name, level in sorted(features.items()))


def tree_of(image: MetadataImage, log: MetadataLog, cluster_id: str, broker_id: int) -> Nodes:
    """The tree of the cluster in `image`."""
    nodes: Nodes = {
        znodes.CLUSTER_ID: znodes.encode_cluster_id(cluster_id),
        znodes.CONTROLLER_EPOCH: znodes.encode_epoch(log.epoch),
        znodes.FEATURE: znodes.encode_feature(),
    }
    if image.next_producer_id > 0:
        block = znodes.ProducerIdBlock(
            BrokerId(broker_id), max(0, image.next_producer_id - BLOCK_SIZE), image.next_producer_id - 1
        )
        nodes[znodes.PRODUCER_ID_BLOCK] = znodes.encode_producer_ids(block)
    nodes |= nodes_of(image.acls.values())
    for (kind, name), own in image.settings.items():
        if kind == BROKER:
            nodes[znodes.config("brokers", name or DEFAULT_BROKER)] = znodes.encode_config(own)
    of_topic: dict[bytes, dict[int, ImagePartition]] = {topic_id: {} for topic_id in image.topics}
    for (topic_id, number), partition in sorted(image.partitions.items()):
        of_topic[topic_id][number] = partition
    for topic_id, name in image.topics.items():
        found = of_topic[topic_id]
        topic = Topic(name, topic_id, {number: _replicas(each) for number, each in found.items()})
        nodes[znodes.topic(name)] = znodes.encode_topic(topic)
        nodes[znodes.config("topics", name)] = znodes.encode_config(image.settings.get((TOPIC, name), {}))
        for number, each in found.items():
            nodes[znodes.partition_state(*TopicPartition(name, number))] = znodes.encode_leadership(
                _leadership(each, log.epoch)
            )
    return nodes


def _replicas(partition: ImagePartition) -> Replicas:
    return Replicas(
        tuple(map(BrokerId, partition.replicas)),
        tuple(map(BrokerId, partition.adding)),
        tuple(map(BrokerId, partition.removing)),
    )


def _leadership(partition: ImagePartition, controller_epoch: int) -> PartitionLeadership:
    only = partition.replicas if len(partition.replicas) == 1 else []
    isr = partition.isr or partition.eligible or only
    return PartitionLeadership(
        leader=BrokerId(partition.leader),
        leader_epoch=LeaderEpoch(partition.leader_epoch),
        isr=tuple(map(BrokerId, isr)),
        controller_epoch=controller_epoch,
        is_recovering=partition.is_recovering,
    )
