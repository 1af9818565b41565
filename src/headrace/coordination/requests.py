"""What the controller tells each broker, as Kafka's own inter-broker requests. Pure.

    LeaderAndIsr      to the replicas of a partition: who leads it, in which epoch, with which ISR
    UpdateMetadata    to every broker: what clients may be told
    StopReplica       to a broker that is to let go of a replica, or delete it

All in the versions of Apache Kafka 3.9; the newest one is built, and encoding for an older peer drops what it lacks.
"""

from collections.abc import Iterable

from headrace.coordination.cluster import ClusterState
from headrace.coordination.model import LEADER_DURING_DELETE, Broker, PartitionLeadership, Replicas, Topic
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

ControlRequest = m.LeaderAndIsrRequest | m.UpdateMetadataRequest | m.StopReplicaRequest
ControlResponse = m.LeaderAndIsrResponse | m.UpdateMetadataResponse | m.StopReplicaResponse

EPOCH_DURING_DELETE = -2

_SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
SECURITY_PROTOCOLS = {number: name for name, number in _SECURITY_PROTOCOL_IDS.items()}


class RequestBuilder:
    """Builds requests in the name of one controller and epoch."""

    def __init__(self, state: ClusterState, controller_id: BrokerId, controller_epoch: int) -> None:
        self._state = state
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch

    def leader_and_isr(
        self, broker: Broker, partitions: Iterable[TopicPartition], new: frozenset[TopicPartition] = frozenset()
    ) -> m.LeaderAndIsrRequest | None:
        """Those of `partitions` that have a leadership and a replica at `broker`; None when there are none."""
        topics: dict[str, m.LeaderAndIsrRequest.LeaderAndIsrTopicState] = {}
        leaders: set[BrokerId] = set()
        for partition in partitions:
            leadership = self._state.leadership.get(partition)
            topic = self._state.topics[partition.topic]
            replicas = topic.partitions[partition.partition]
            if leadership is None or broker.id not in replicas.replicas:
                continue
            told = _leader_and_isr_partition(partition.partition, leadership, replicas, partition in new)
            if topic.name not in topics:
                topics[topic.name] = m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                    topic_name=topic.name, topic_id=topic.id, partition_states=[]
                )
            topics[topic.name].partition_states.append(told)
            leaders.add(leadership.leader)
        if not topics:
            return None
        return m.LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=broker.epoch,
            topic_states=list(topics.values()),
            live_leaders=[
                m.LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=each.id, host_name=host, port=port)
                for each in self._state.brokers.values()
                if each.id in leaders
                for _, host, port, _ in each.endpoints[:1]
            ],
        )

    def update_metadata(self, broker: Broker, partitions: Iterable[TopicPartition]) -> m.UpdateMetadataRequest:
        """The brokers, and these partitions; a partition of a topic to be deleted gets the leader that says so."""
        topics: dict[str, m.UpdateMetadataRequest.UpdateMetadataTopicState] = {}
        for partition in partitions:
            topic = self._state.topics[partition.topic]
            told = self._metadata_partition(topic, partition)
            if told is None:
                continue
            if topic.name not in topics:
                topics[topic.name] = m.UpdateMetadataRequest.UpdateMetadataTopicState(
                    topic_name=topic.name, topic_id=topic.id, partition_states=[]
                )
            topics[topic.name].partition_states.append(told)
        return m.UpdateMetadataRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=broker.epoch,
            topic_states=list(topics.values()),
            live_brokers=[_live_broker(each) for each in self._state.brokers.values()],
        )

    def stop_replicas(
        self, broker: Broker, partitions: Iterable[TopicPartition], *, delete: bool
    ) -> m.StopReplicaRequest | None:
        """Lets go of the replicas at `broker`; None when it has none of them."""
        topics: dict[str, m.StopReplicaRequest.StopReplicaTopicState] = {}
        for partition in partitions:
            if broker.id not in self._state.topics[partition.topic].partitions[partition.partition].replicas:
                continue
            if partition.topic not in topics:
                topics[partition.topic] = m.StopReplicaRequest.StopReplicaTopicState(
                    topic_name=partition.topic, partition_states=[]
                )
            topics[partition.topic].partition_states.append(
                m.StopReplicaRequest.StopReplicaPartitionState(
                    partition_index=partition.partition,
                    leader_epoch=EPOCH_DURING_DELETE if delete else self._state.leadership[partition].leader_epoch,
                    delete_partition=delete,
                )
            )
        if not topics:
            return None
        return m.StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=broker.epoch,
            topic_states=list(topics.values()),
        )

    def _metadata_partition(
        self, topic: Topic, partition: TopicPartition
    ) -> m.UpdateMetadataRequest.UpdateMetadataPartitionState | None:
        leadership = self._state.leadership.get(partition)
        if leadership is None:
            return None
        replicas = topic.partitions[partition.partition].replicas
        is_deleting = topic.name in self._state.deleting
        alive = self._state.online(partition)
        return m.UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=leadership.controller_epoch,
            leader=LEADER_DURING_DELETE if is_deleting else leadership.leader,
            leader_epoch=leadership.leader_epoch,
            isr=list(leadership.isr),
            zk_version=leadership.partition_epoch,
            replicas=list(replicas),
            offline_replicas=[each for each in replicas if each not in alive],
        )


def _leader_and_isr_partition(
    number: int, leadership: PartitionLeadership, replicas: Replicas, is_new: bool
) -> m.LeaderAndIsrRequest.LeaderAndIsrPartitionState:
    return m.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=number,
        controller_epoch=leadership.controller_epoch,
        leader=leadership.leader,
        leader_epoch=leadership.leader_epoch,
        isr=list(leadership.isr),
        partition_epoch=leadership.partition_epoch,
        replicas=list(replicas.replicas),
        adding_replicas=list(replicas.adding),
        removing_replicas=list(replicas.removing),
        is_new=is_new,
        leader_recovery_state=int(leadership.is_recovering),
    )


def _live_broker(broker: Broker) -> m.UpdateMetadataRequest.UpdateMetadataBroker:
    return m.UpdateMetadataRequest.UpdateMetadataBroker(
        id=broker.id,
        rack=broker.rack,
        endpoints=[
            m.UpdateMetadataRequest.UpdateMetadataEndpoint(
                listener=each.listener,
                host=each.host,
                port=each.port,
                security_protocol=_SECURITY_PROTOCOL_IDS[each.security_protocol],
            )
            for each in broker.endpoints
        ],
    )
