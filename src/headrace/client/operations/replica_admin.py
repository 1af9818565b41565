"""Administration of replicas: leader elections and partition reassignments.

All requests go to the controller. The cluster completes a reassignment after the call has returned, as replicas catch
up: `reassignments` returns those still under way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import error_for
from headrace.errors import ErrorCode, known_code
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

_PREFERRED, _UNCLEAN = 0, 1


class Reassignment(NamedTuple):
    """A partition that moves to other brokers; `replicas` are the old and the new ones."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


class ReplicaAdmin:
    """Calls about replicas on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def elect_leaders(
        self, partitions: Collection[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        """Elects the preferred leaders of partitions (None: all); `unclean` elects any live replica if there is no
        leader. Returns each result; ELECTION_NOT_NEEDED means no change. Raises KafkaError if nothing was tried."""
        deadline = self._cluster.deadline()
        requested = [
            m.ElectLeadersRequest.TopicPartitions(topic=name, partitions=each)
            for name, each in _by_topic(partitions or ()).items()
        ]
        request = m.ElectLeadersRequest(
            election_type=_UNCLEAN if unclean else _PREFERRED,
            topic_partitions=None if partitions is None else requested,
            timeout_ms=self._cluster.settings.request_timeout_ms,
        )

        def attempt() -> m.ElectLeadersResponse:
            answer = self._cluster.call_controller(request, m.ElectLeadersResponse, deadline)
            _check(answer.error_code, "the election", None)
            return answer

        answer = self._cluster.retry(attempt, deadline)
        return {
            TopicPartition(topic.topic, each.partition_id): known_code(each.error_code)
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }

    def reassign(self, wanted: Mapping[TopicPartition, Iterable[int] | None]) -> None:
        """Starts to move partitions to these brokers, the preferred leader first. None cancels a move: the partition
        returns to its old brokers. KafkaError names the first refused partition."""
        deadline = self._cluster.deadline()
        topics: dict[str, list[m.AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
        for (topic, number), replicas in wanted.items():
            topics.setdefault(topic, []).append(
                m.AlterPartitionReassignmentsRequest.ReassignablePartition(
                    partition_index=number, replicas=None if replicas is None else list(replicas)
                )
            )
        request = m.AlterPartitionReassignmentsRequest(
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topics=[
                m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=each)
                for name, each in topics.items()
            ],
        )

        def attempt() -> None:
            answer = self._cluster.call_controller(request, m.AlterPartitionReassignmentsResponse, deadline)
            _check(answer.error_code, "the reassignment", answer.error_message)
            for topic in answer.responses:
                for each in topic.partitions:
                    _check(each.error_code, f"{topic.name}-{each.partition_index}", each.error_message)

        self._cluster.retry(attempt, deadline)

    def reassignments(self) -> dict[TopicPartition, Reassignment]:
        """Every partition that is being reassigned."""
        deadline = self._cluster.deadline()
        request = m.ListPartitionReassignmentsRequest(timeout_ms=self._cluster.settings.request_timeout_ms, topics=None)

        def attempt() -> dict[TopicPartition, Reassignment]:
            answer = self._cluster.call_controller(request, m.ListPartitionReassignmentsResponse, deadline)
            _check(answer.error_code, "the list of reassignments", answer.error_message)
            return {
                TopicPartition(topic.name, each.partition_index): Reassignment(
                    tuple(map(BrokerId, each.replicas)),
                    tuple(map(BrokerId, each.adding_replicas)),
                    tuple(map(BrokerId, each.removing_replicas)),
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return self._cluster.retry(attempt, deadline)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


def _check(code: int, what: str, message: str | None) -> None:
    if code:
        raise error_for(code, f"{what}: {message}" if message else what)
