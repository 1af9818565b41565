"""What tasks do in Spark's Python processes."""

import gc
from itertools import count

import pytest
from pyspark import TaskContext

from headrace.spark import worker
from headrace.spark.source.options import parse_options
from headrace.spark.source.source import NOTHING, BatchReader, RangePartition

OPTIONS = parse_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_tasks", count())


@pytest.mark.parametrize(("is_task", "times"), [(True, 2), (False, 0)])
def test_the_first_tasks_of_a_process_leave_what_is_loaded_out_of_collections(
    monkeypatch: pytest.MonkeyPatch, is_task: bool, times: int
) -> None:
    frozen: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(None))
    monkeypatch.setattr(TaskContext, "get", lambda: TaskContext() if is_task else None)
    for _ in range(4):
        assert list(BatchReader(OPTIONS).read(RangePartition(NOTHING))) == []
    assert len(frozen) == times
