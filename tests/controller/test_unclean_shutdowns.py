"""A broker that comes back from an unclean shutdown is judged once, whichever controller dies over it, and when."""

import asyncio
from pathlib import Path

import pytest

from headrace.controller import controller_epoch as epoch_module
from headrace.controller.controller import NotController
from headrace.errors import ErrorCode
from headrace.metadata import znodes
from headrace.metadata.registry import register_broker
from headrace.metastore.store import Create, Delete, Op, OpResult, SessionLost, SessionState
from headrace.protocol import messages as m
from tests.controller.paper_brokers import Cluster, cluster_in, create, registration
from tests.controller.test_leaders import alter, only

CRASHED = registration(2)._replace(is_clean=False, directory="d")


async def crash(cluster: Cluster) -> None:
    """Broker 2 is back from an unclean shutdown, before anybody saw it gone."""
    path = znodes.broker(2)
    await cluster.store.multi([Delete(path), Create(path, znodes.encode_broker(CRASHED, 0), ephemeral=True)])


async def next_epoch(cluster: Cluster) -> None:
    """Another controller is elected: the same object, which knows what it reads from the metadata store."""
    epoch = cluster.controller.epoch
    cluster.controller._candidate._on_session(SessionState.LOST)
    await cluster.store.delete(znodes.CONTROLLER)

    async def is_elected() -> bool:
        return cluster.controller.is_active and cluster.controller.epoch > epoch

    await cluster.until(is_elected)


async def test_a_state_decided_before_the_crash_was_seen_does_not_hide_it_from_the_next_controller(
    cluster: Cluster,
) -> None:
    await create(cluster, "t", {0: (2, 3, 1)})
    write = cluster.store.multi

    async def crash_between(ops: list[Op]) -> list[OpResult]:
        cluster.store.multi = write  # type: ignore[method-assign]
        await crash(cluster)
        await write(ops)
        cluster.controller._candidate._on_session(SessionState.LOST)  # it dies before it sees the registration
        raise SessionLost("it died")

    cluster.store.multi = crash_between  # type: ignore[method-assign,assignment]
    with pytest.raises(NotController):
        await alter(cluster, 2, 2, 3)
    assert (await cluster.state("t")).isr == (2, 3)
    await next_epoch(cluster)
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (3, (3,))


async def test_a_request_that_a_leader_sent_before_its_crash_does_not_shrink_the_isr_after_it(cluster: Cluster) -> None:
    """It waits in the queue of the controller before the notice of the new registration. Else the ISR loses the replica
    that has all records, and keeps the one that may have lost some."""
    await create(cluster, "t", {0: (2, 3)})
    before = (await cluster.store.get(znodes.broker(2))).czxid
    queued: list[asyncio.Task[m.AlterPartitionResponse]] = []

    async def crash_while_it_waits() -> None:
        queued.append(asyncio.create_task(alter(cluster, 2, 2, broker_epoch=before, epoch_2=before)))
        await asyncio.sleep(0.05)
        await crash(cluster)

    await cluster.controller._candidate.do(crash_while_it_waits)
    assert (await queued[0]).error_code == ErrorCode.STALE_BROKER_EPOCH
    await cluster.settle()
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (3, (3,))


@pytest.mark.parametrize("is_written", [False, True], ids=["before the write", "after it"])
async def test_a_crash_is_dealt_with_at_whichever_write_the_controller_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    monkeypatch.setattr(epoch_module, "OPS_PER_MULTI_MAX", 1)
    deaths = 0
    for deadly in range(20):
        (tmp_path / str(deadly)).mkdir()
        async with cluster_in(tmp_path / str(deadly)) as cluster:
            for name in ("t", "u", "v"):
                await create(cluster, name, {0: (2, 3, 1)})
            await create(cluster, "alone", {0: (2,)})
            has_died = await _die_at_write(cluster, deadly, is_written=is_written)
            deaths += has_died
            if has_died:
                await next_epoch(cluster)
            for name in ("t", "u", "v"):
                state = await cluster.state(name)
                assert (state.leader, state.isr) == (3, (3, 1)), f"{name}: died at write {deadly}"
            alone = await cluster.state("alone")
            assert (alone.leader, alone.isr) == (2, (2,)) and alone.leader_epoch > 0
            assert only(await alter(cluster, 3, 3, 1, 2)).error_code == ErrorCode.NONE
            await next_epoch(cluster)  # which knows that this registration was judged
            assert (await cluster.state("t")).isr == (3, 1, 2)
        if not has_died:
            break
    assert deaths == 5  # four states and the note


async def _die_at_write(cluster: Cluster, deadly: int, *, is_written: bool) -> bool:
    """Whether the controller died, over the crash of broker 2, at its write of that number."""
    write, count, has_died = cluster.store.multi, 0, False

    async def counted(ops: list[Op]) -> list[OpResult]:
        nonlocal count, has_died
        if not _is_guarded(ops):
            return await write(ops)
        if has_died:
            raise SessionLost("it is dead")
        has_died, count = count == deadly, count + 1
        if has_died and not is_written:
            cluster.controller._candidate._on_session(SessionState.LOST)
            raise SessionLost("it died")
        results = await write(ops)
        if has_died:
            cluster.controller._candidate._on_session(SessionState.LOST)
            raise SessionLost("it died")
        return results

    cluster.store.multi = counted  # type: ignore[method-assign,assignment]
    await crash(cluster)

    async def is_over() -> bool:
        noted = await cluster.store.exists(znodes.unclean_shutdown(2))
        return has_died or noted is not None

    try:
        await cluster.until(is_over)
    finally:
        cluster.store.multi = write  # type: ignore[method-assign]
    return has_died


def _is_guarded(ops: list[Op]) -> bool:
    return ops[0].path == znodes.CONTROLLER_EPOCH


async def test_a_new_registration_takes_the_note_of_the_one_before_along(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    await crash(cluster)
    await cluster.settle()
    node = await cluster.store.get(znodes.unclean_shutdown(2))
    assert znodes.decode_fenced(node.data) == (await cluster.store.get(znodes.broker(2))).czxid
    await cluster.store.delete(znodes.broker(2))
    await register_broker(cluster.store, registration(2), 0)
    assert await cluster.store.exists(znodes.unclean_shutdown(2)) is None


async def test_a_topic_that_cannot_be_read_keeps_the_note_from_being_written(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    await create(cluster, "broken", {0: (2, 3)})
    node = await cluster.store.get(znodes.topic("broken"))
    await cluster.store.set(znodes.topic("broken"), b"?")
    await next_epoch(cluster)
    await crash(cluster)
    await cluster.settle()
    assert (await cluster.state("t")).isr == (3,)
    assert await cluster.store.exists(znodes.unclean_shutdown(2)) is None
    await cluster.store.set(znodes.topic("broken"), node.data)
    await next_epoch(cluster)
    assert (await cluster.state("broken")).isr == (3,)
    assert await cluster.store.exists(znodes.unclean_shutdown(2)) is not None
