"""What the embedded store promises beyond the interface: durable, quick to open, one process at a time."""

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from headrace.errors import StorageError
from headrace.metastore.database import StoreInUse, StoreUnreadable
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import Create

CHILD = """
import asyncio, sys
from contextlib import closing
from pathlib import Path
from headrace.metastore.embedded import EmbeddedStore

async def main():
    tree = await EmbeddedStore.open(Path(sys.argv[1]))
    await tree.create("/eph", ephemeral=True)
    await tree.create("/n")
    print("open", flush=True)
    for number in range(1_000_000):
        version = await tree.set("/n", str(number).encode())
        await tree.create("/n/", b"", sequential=True)
        print(version, flush=True)

asyncio.run(main())
"""


def start_child(directory: Path) -> "subprocess.Popen[str]":
    """A process that writes to the metadata store until it is killed, and says what was answered."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(directory)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    return child


async def test_nodes_and_versions_are_there_after_a_clean_stop(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path)
    await store.multi([Create("/a", b"1"), Create("/a/b", b"2"), Create("/gone", ephemeral=True)])
    await store.set("/a/b", b"3")
    before = await store.get("/a/b")
    await store.close()
    store = await EmbeddedStore.open(tmp_path)
    assert await store.get("/a/b") == before
    assert await store.exists("/gone") is None
    await store.create("/later")
    assert (await store.get("/later")).czxid > before.mzxid
    await store.close()


async def test_sessions_have_different_owners(tmp_path: Path) -> None:
    owners = []
    for _ in range(2):
        store = await EmbeddedStore.open(tmp_path)
        await store.create("/e", ephemeral=True)
        owners.append((await store.get("/e")).ephemeral_owner)
        await store.close()
    assert len(set(owners)) == 2


async def test_what_was_answered_is_there_after_kill_9_and_ephemeral_nodes_are_not(tmp_path: Path) -> None:
    child = start_child(tmp_path)
    assert child.stdout is not None
    answered = [int(child.stdout.readline()) for _ in range(20)][-1]
    child.send_signal(signal.SIGKILL)
    answered = max([answered, *(int(line) for line in child.stdout.read().split())])
    child.wait()
    store = await EmbeddedStore.open(tmp_path)
    node = await store.get("/n")
    assert node.version in (answered, answered + 1)
    assert node.data == str(node.version - 1).encode()
    assert len(await store.children("/n")) in (answered, answered + 1)
    assert await store.exists("/eph") is None
    await store.close()


@pytest.mark.parametrize("was_open", [False, True])
async def test_no_other_user_can_read_it_whatever_the_umask(tmp_path: Path, was_open: bool) -> None:
    """`headrace user add` may open it before the first start of a broker, in a directory that is there."""
    if was_open:
        await (await EmbeddedStore.open(tmp_path)).close()
        (tmp_path / "headrace-tree.sqlite").chmod(0o644)
    before = os.umask(0o022)
    try:
        store = await EmbeddedStore.open(tmp_path)
        await store.create("/secret")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("headrace-tree*")}
        assert len(modes) > 1 and set(modes.values()) == {0o600}, modes
        await store.close()
    finally:
        os.umask(before)


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    child = start_child(tmp_path)
    try:
        with pytest.raises(StoreInUse):
            await EmbeddedStore.open(tmp_path)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    await (await EmbeddedStore.open(tmp_path)).close()


async def test_a_second_opening_in_the_same_process_is_refused(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path)
    with pytest.raises(StoreInUse):
        await EmbeddedStore.open(tmp_path)
    await store.close()


async def test_a_file_that_is_no_tree_is_refused(tmp_path: Path) -> None:
    (tmp_path / "headrace-tree.sqlite").write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(StoreUnreadable, match="not a database"):
        await EmbeddedStore.open(tmp_path)


@pytest.mark.parametrize("version", [1, 3])
async def test_a_tree_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path, version: int) -> None:
    store = await EmbeddedStore.open(tmp_path)
    await store.close()
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(StoreUnreadable, match=f"the schema has version {version}"):
        await EmbeddedStore.open(tmp_path)


async def test_a_full_disk_is_a_typed_error_and_nothing_is_half_written(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path)
    await store._run(lambda store: store._db.execute("PRAGMA max_page_count = 20"))
    with pytest.raises(StorageError, match="full"):
        await store.multi([Create("/a"), *(Create(f"/a/{number}", b"x" * 1000) for number in range(200))])
    assert await store.children("/") == []
    assert await store.create("/a") == "/a"
    await store.close()


async def test_the_loop_goes_on_while_the_tree_works(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await store.multi([Create("/a"), *(Create(f"/a/{number}") for number in range(2000))])
    counting.cancel()
    assert turns > 10
    await store.close()


async def test_a_caller_that_gives_up_leaves_the_tree_usable(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path)
    writing = asyncio.create_task(store.create("/a"))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await store.create("/b") == "/b"
    await store.close()
