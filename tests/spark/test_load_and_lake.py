"""Tables that the load job and the writer without Spark continue in turn."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace.client.producer.producer import Producer
from headrace.config.lake_definition import LakeDefinition
from headrace.lake.decoders import make_decoder
from headrace.lake.delta.delta_table import LoadTable
from headrace.spark.load.load import LoadJob, run_load
from tests.lake.lakes import run_once
from tests.spark.conftest import fill_readings

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_load_job_and_the_lake_continue_each_others_tables(
    spark: SparkSession, broker: str, tmp_path: Path
) -> None:
    schema = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}
    of_columns = LakeDefinition(table="t", values="json", schema=schema)
    fill_readings(broker, "in-turn", {0: 0})
    for table, value_json, definition in (
        (tmp_path / "raw", None, LakeDefinition(table="t")),
        (tmp_path / "columns", "n LONG", of_columns),
    ):
        job = LoadJob(table, {"kafka.bootstrap.servers": broker, "subscribe": "in-turn"}, value_json=value_json)
        for turn in range(4):
            with Producer(broker) as producer:
                producer.send("in-turn", b'{"n":7}', b"k", partition=0)
            if turn % 2 == 0:
                run_once(broker, "in-turn", table, make_decoder=lambda known, one=definition: make_decoder(one, known))
            else:
                run_load(job)
        opened = LoadTable.open(table)
        assert opened is not None
        rows = [row for file in opened.files for row in pq.ParquetFile(file).read().to_pylist()]
        offsets = Counter(row["offset"] for row in rows)
        assert offsets == Counter(range(len(offsets)))
        read = spark.read.parquet(*map(str, opened.files)).drop("offset", "timestamp").distinct().collect()
        assert len(read) == 1, "every row is the same, whoever wrote it"
        if value_json:
            assert read[0].asDict() == {
                "topic": "in-turn",
                "partition": 0,
                "key": b"k",
                "n": 7,
                "corrupt_value": None,
                "tombstone": False,
            }
