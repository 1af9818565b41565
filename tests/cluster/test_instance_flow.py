"""One limit of an instance over three brokers: its sum, skewed load, a controller that is killed, and the capacity."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.cluster.limited_tenant import KIB, SIZE, Tenant
from tests.cluster.local_cluster import LocalCluster
from tests.eventually import eventually

LIMIT = 300 * KIB

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(6) as threads:
        yield threads


def test_the_sum_keeps_to_the_limit_and_follows_the_load(cluster: LocalCluster, pool: ThreadPoolExecutor) -> None:
    tenant = Tenant(cluster, bytes_in=LIMIT, burst_seconds=0.5)
    try:
        _busy_broker_gets_nearly_all(tenant, pool)
        _keeps_to_the_limit_when_the_controller_is_killed(tenant, cluster)
    finally:
        tenant.stop()
    tenant.delete()


def _busy_broker_gets_nearly_all(tenant: Tenant, pool: ThreadPoolExecutor) -> None:
    """F is a third for each broker. One busy broker is given what the others leave."""
    for _ in range(2):
        pool.submit(tenant.produce_to(1))
    eventually(
        lambda: tenant.shared_out().get(1, {}).get("allotted", 0) > 0.9 * LIMIT,
        "the busy broker to be allotted more than 90 %",
        every_s=0.5,
        state=lambda: tenant.flow(),
    )
    eventually(
        lambda: tenant.flow().of(tenant.name)[_id(1)]["in"]["rate"] > 0.9 * LIMIT, "the lease in force", every_s=0.2
    )
    rate = tenant.rate_over(5)
    assert 0.7 * LIMIT < rate < 1.1 * LIMIT, (rate, tenant.flow())
    for broker in (2, 3):
        pool.submit(tenant.produce_to(broker))
    eventually(
        lambda: max(each["allotted"] for each in tenant.shared_out().values() or [{"allotted": LIMIT}]) < 0.5 * LIMIT,
        "the limit to be shared again",
        every_s=0.5,
        state=lambda: tenant.flow(),
    )
    rate = tenant.rate_over(5)
    assert 0.7 * LIMIT < rate < 1.1 * LIMIT, (rate, tenant.flow())


def _keeps_to_the_limit_when_the_controller_is_killed(tenant: Tenant, cluster: LocalCluster) -> None:
    killed = cluster.controller()
    cluster.brokers[killed].kill()
    began, before = time.monotonic(), sum(tenant.produced.values())
    cluster.wait_until_present({1, 2, 3} - {killed})
    eventually(
        lambda: (
            killed not in {each for each, found in tenant.shared_out().items() if found["partitions"]}
            and len(tenant.shared_out()) >= 2
        ),
        "the next controller to share the limit out",
        every_s=0.5,
        state=lambda: tenant.flow(),
    )
    elapsed = time.monotonic() - began
    # The burst of each broker, and what it had begun, come on top.
    assert sum(tenant.produced.values()) - before < LIMIT * (elapsed * 1.1 + 2)
    rate = tenant.rate_over(4)
    assert rate < 1.15 * LIMIT, (rate, tenant.flow())


def test_the_capacity_counts_each_replica_on_all_brokers(cluster: LocalCluster, pool: ThreadPoolExecutor) -> None:
    capacity = 3 * 60 * SIZE  # 60 requests with three replicas each
    tenant = Tenant(cluster, capacity=capacity)
    with Asker(tenant.addresses[1]) as one, Asker(tenant.addresses[2]) as two:
        codes = {1: 0, 2: 0}
        while not all(codes.values()):
            for broker, asker in ((1, one), (2, two)):
                codes[broker] = tenant.produce_once(asker, broker)
            assert sum(tenant.produced.values()) < 4 * capacity
        assert set(codes.values()) == {int(ErrorCode.POLICY_VIOLATION)}
        assert sum(tenant.produced.values()) >= capacity / 3 * 0.97
        shown = tenant.flow().shared_out(tenant.name)
        assert shown is not None
        eventually(lambda: _is_full(tenant), "the controller to know", every_s=0.2, state=lambda: tenant.flow())
        killed = cluster.controller()
        cluster.brokers[killed].kill()
        cluster.wait_until_present({1, 2, 3} - {killed})
        eventually(lambda: _is_full(tenant), "the next controller to know", every_s=0.2, state=lambda: tenant.flow())
    left = next(each for each in (1, 2, 3) if each != killed)
    with Asker(tenant.addresses[left]) as asker:
        leads = eventually(lambda: _partition_led_by(cluster, tenant, left), "a partition that it leads", every_s=0.2)
        assert tenant.produce_once(asker, leads) == ErrorCode.POLICY_VIOLATION
        for broker in (1, 2, 3):
            _delete_records(cluster, tenant, broker - 1)
        eventually(
            lambda: tenant.produce_once(asker, leads) == 0,
            "room when the records were deleted",
            every_s=0.3,
            state=lambda: tenant.flow(),
        )
    tenant.delete()


def _is_full(tenant: Tenant) -> bool:
    try:
        shared = tenant.flow().shared_out(tenant.name)
    except KafkaError:
        return False
    return shared is not None and bool(shared["is_full"])


def _partition_led_by(cluster: LocalCluster, tenant: Tenant, broker: int) -> int:
    """The number of a partition that the broker leads, plus one; 0 for none."""
    for each in cluster.topic(f"{tenant.name}.orders"):
        if each.leader == broker:
            return each.partition + 1
    return 0


def _delete_records(cluster: LocalCluster, tenant: Tenant, number: int) -> None:
    topic = f"{tenant.name}.orders"
    part = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=number, offset=-1)
    wanted = m.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[part])
    leader = cluster.leader(topic, number)
    with Asker(cluster.brokers[leader].bootstrap) as asker:
        answer = asker.ask(m.DeleteRecordsRequest(topics=[wanted], timeout_ms=20_000), 2)
        assert answer.topics[0].partitions[0].error_code == 0, answer


def _id(broker: int) -> Any:
    return broker
