"""What tasks do in Spark's Python processes."""

import gc
from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from headrace.spark.source.options import parse_options
from headrace.spark.source.source import NOTHING, BatchReader, RangePartition
from headrace.spark.worker import settle

OPTIONS = parse_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    settle.cache_clear()
    yield
    settle.cache_clear()


@pytest.mark.parametrize(("is_task", "times"), [(True, 1), (False, 0)])
def test_the_first_task_of_a_process_leaves_what_is_loaded_out_of_collections(
    monkeypatch: pytest.MonkeyPatch, is_task: bool, times: int
) -> None:
    frozen: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(None))
    monkeypatch.setattr(TaskContext, "get", lambda: TaskContext() if is_task else None)
    for _ in range(2):
        assert list(BatchReader(OPTIONS).read(RangePartition(NOTHING))) == []
    assert len(frozen) == times
