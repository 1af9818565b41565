"""Lake tables in an object store, by S3's interface. Commits go through processes of their own: the table library holds
the interpreter's lock while it waits for the store, which is a thread of this one."""

import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.harness import child_environment
from tests.lake.lakes import produce
from tests.s3_server import Store, serving, settings_of

TABLE = "s3://lake/tables/orders"


@pytest.fixture
def store() -> Iterator[tuple[dict[str, str], Store]]:
    with serving() as (address, store):
        yield settings_of(address), store


def lake(store: tuple[dict[str, str], Store], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", "lake", *arguments],
        env={**child_environment(), **store[0]},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def rows_in(store: Store) -> int:
    """The rows of all Parquet files."""
    found = [
        content for name, content in store.objects.items() if name.endswith(".parquet") and "_delta_log" not in name
    ]
    return sum(pa.parquet.read_metadata(pa.BufferReader(each)).num_rows for each in found)


@pytest.mark.slow
def test_a_table_in_a_store_is_written_continued_and_read(
    broker: str, topic: str, store: tuple[dict[str, str], Store]
) -> None:
    where = ("--bootstrap", broker)
    added = lake(store, "add", topic, "--table", TABLE, "--partition-by", "bucket:2", *where)
    assert added.returncode == 0, added.stderr
    for first in (0, 10):
        produce(broker, topic, 10, first=first)
        done = lake(store, "run", topic, "--once", *where)
        assert (done.returncode, "10 rows" in done.stdout) == (0, True), done.stderr
    assert rows_in(store[1]) == 20
    assert {name.split("/")[0] for name in store[1].objects} == {"lake"}
    produce(broker, topic, 5, first=20)
    read = """
import sys
from headrace.lake import whole_topic
found = whole_topic.table(sys.argv[1], sys.argv[2]).to_arrow()
print(found.num_rows, len(set(zip(found["partition"].to_pylist(), found["offset"].to_pylist()))))
"""
    shown = subprocess.run(
        [sys.executable, "-c", read, broker, topic],
        env={**child_environment(), **store[0]}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert shown.stdout.split() == ["25", "25"], shown.stderr


@pytest.mark.slow
def test_a_commit_that_comes_second_is_refused_by_the_store_and_made_on_the_newer_version(
    broker: str, topic: str, store: tuple[dict[str, str], Store]
) -> None:
    where = ("--bootstrap", broker)
    assert lake(store, "add", topic, "--table", TABLE, *where).returncode == 0
    produce(broker, topic, 10)
    store[1].failing = 1  # of the library's own retries
    store[1].rivals["/00000000000000000001.json"] = b'{"commitInfo":{"timestamp":0,"operation":"OPTIMIZE"}}\n'
    done = lake(store, "run", topic, "--once", *where)
    assert "10 rows in 1 file, version 2" in done.stdout, done.stderr
    assert store[1].refused == 1
    assert rows_in(store[1]) == 10
