"""An instance on the cluster of three brokers, with clients that produce as fast as its limit lets them."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from headrace.client.core.cluster import Cluster
from headrace.client.operations.instance_admin import InstanceAdmin
from headrace.client.operations.instance_flow_admin import ClusterFlow, InstanceFlowAdmin
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster
from tests.harness import unused
from tests.wire import batch

KIB = 1024
SIZE = 10 * KIB
"""Bytes of a request."""
KEEPS = m.CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="-1")


class Tenant:
    """An instance with a topic of one partition on each broker."""

    def __init__(self, cluster: LocalCluster, **fields: object) -> None:
        self.cluster, self.name = cluster, unused("i")
        with Cluster(cluster.bootstrap) as operator:
            admin = InstanceAdmin(operator)
            admin.create_instance(self.name, fields)
            endpoints = admin.await_listeners(self.name).endpoints
        self.addresses = {int(broker): str(address) for broker, address in endpoints.items()}
        assert set(self.addresses) == set(cluster.brokers)
        wish = m.CreateTopicsRequest.CreatableTopic(
            name="orders",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                m.CreateTopicsRequest.CreatableReplicaAssignment(
                    partition_index=broker - 1, broker_ids=[broker, *(each for each in (1, 2, 3) if each != broker)]
                )
                for broker in (1, 2, 3)
            ],
            configs=[KEEPS],
        )
        with Asker(self.addresses[1]) as asker:
            made = asker.ask(m.CreateTopicsRequest(topics=[wish], timeout_ms=20_000), 5)
            assert made.topics[0].error_code == 0, made
        self.produced = dict.fromkeys(self.addresses, 0)
        self.refused = dict.fromkeys(self.addresses, 0)
        self._is_over = threading.Event()

    def flow(self) -> ClusterFlow:
        with Cluster(self.cluster.bootstrap) as operator:
            return InstanceFlowAdmin(operator).describe_flow([self.name])

    def delete(self) -> None:
        with Cluster(self.cluster.bootstrap) as operator:
            InstanceAdmin(operator).delete_instance(self.name, with_data=True, grace_ms=0)

    def shared_out(self) -> dict[int, dict[str, Any]]:
        """What the controller allots of the bytes in, by broker."""
        found = self.flow().shared_out(self.name)
        return {} if found is None else {each["broker_id"]: each for each in found["in"]["brokers"]}

    def produce_to(self, broker: int) -> Callable[[], None]:
        """Produces to one broker's partition, request by request, until `stop`; connects again when it has to."""

        def run() -> None:
            while not self._is_over.is_set():
                with suppress(OSError, ConnectionError), Asker(self.addresses[broker]) as asker:
                    while not self._is_over.is_set():
                        self.produce_once(asker, broker)

        return run

    def produce_once(self, asker: Asker, broker: int) -> int:
        part = m.ProduceRequest.PartitionProduceData(index=broker - 1, records=batch([bytes(SIZE - 80)]))
        data = m.ProduceRequest.TopicProduceData(name="orders", partition_data=[part])
        answer = asker.ask(m.ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data]), 9)
        code = int(answer.responses[0].partition_responses[0].error_code)
        if code == 0:
            self.produced[broker] += SIZE
        else:
            self.refused[broker] += 1
            time.sleep(0.02)
        return code

    def stop(self) -> None:
        self._is_over.set()

    def rate_over(self, seconds: float) -> float:
        """Bytes/s on all brokers from now on."""
        began, before = time.monotonic(), sum(self.produced.values())
        time.sleep(seconds)
        return (sum(self.produced.values()) - before) / (time.monotonic() - began)
