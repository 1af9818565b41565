"""docs/spark.md names every option that the code takes, and no other; its listener listens."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.client.consumer.fetching import FetchSizes
from headrace.client.core.settings import ClientSettings
from headrace.client.producer.producer import ProducerSettings
from headrace.client.security.client_options import NUMBERS
from headrace.spark.sink import sink_options
from headrace.spark.source import cluster_access, options
from tests.spark.conftest import TOPIC

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
SPARKS_OWN = {"checkpointLocation", "queryName"}
NAMES = re.compile(r"`([A-Za-z.]+)`")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """The cells of the section's first table."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def named(cells: Iterable[str]) -> list[str]:
    return [name for cell in cells for name in NAMES.findall(cell)]


class Asked(dict[str, str]):
    """Options that remember what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return default

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return False


def asked_by(*functions: Callable[[Mapping[str, str]], object]) -> set[str]:
    """The names that these functions look up."""
    given = Asked()
    for function in functions:
        function(given)
    return given.names


def test_every_option_of_a_read_is_in_its_table_and_no_other() -> None:
    documented = named(cells[0] for cells in rows("Options of a read"))
    assert sorted(documented) == sorted([*options.KNOWN_OPTIONS, "kafka.bootstrap.servers", "kafka.group.id"])


def test_every_option_of_a_write_is_in_its_table_and_no_other() -> None:
    documented = named(cells[0] for cells in rows("Options of a write"))
    assert sorted(documented) == sorted([*sink_options.KNOWN_OPTIONS, *SPARKS_OWN, "kafka.bootstrap.servers"])


def test_every_setting_of_the_client_is_in_its_table_where_it_has_an_effect() -> None:
    documented = {name: cells for cells in rows("Settings of the client") for name in named(cells[:1])}
    reads = {name for name, cells in documented.items() if cells[2]}
    writes = {name for name, cells in documented.items() if cells[3]}
    both = asked_by(cluster_access.client_settings)
    assert reads == both | asked_by(cluster_access.isolation_level, cluster_access.fetch_sizes) | {
        *("group.id", "client.rack"),  # `ReadOptions.group_id`, `source.read_columns`
    }
    assert writes == both | asked_by(sink_options._producer_settings)


def test_the_defaults_of_the_client_are_those_of_the_code() -> None:
    shown: dict[str, str] = {}
    for cells in rows("Settings of the client"):
        names, defaults = named(cells[:1]), [each.strip() for each in cells[1].split(",")]
        shown |= dict(zip(names, defaults, strict=True)) if len(names) == len(defaults) else {}
    client, producer = ClientSettings(), sink_options._producer_settings({})
    attributes = {
        "linger.ms": producer.linger_ms, "batch.size": producer.batch_bytes, "max.request.size": producer.request_bytes,
        "buffer.memory": producer.buffer_memory_bytes, "max.block.ms": producer.max_block_ms, "acks": producer.acks,
        "delivery.timeout.ms": producer.delivery_timeout_ms, "compression.type": producer.compression,
        "transaction.timeout.ms": producer.transaction_timeout_ms,
        "max.partition.fetch.bytes": FetchSizes().partition_max_bytes,
        "client.id": cluster_access.client_settings({}).client_id,
        **{name: getattr(client, attribute) for name, attribute in NUMBERS.items()},
    }  # fmt: skip
    assert isinstance(producer, ProducerSettings)
    assert {name: shown[name] for name in attributes} == {name: str(value) for name, value in attributes.items()}


def test_the_listener_of_the_page_prints_the_figures(
    spark: SparkSession, readings: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    [code] = re.findall(r"```python\n(.*?)```", section("Monitoring"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - a page of ours
    try:
        given = {"kafka.bootstrap.servers": readings, "subscribe": TOPIC, "startingOffsets": "earliest"}
        frame = spark.readStream.format("headrace").options(**given).load()
        writer = frame.writeStream.format("noop").queryName("shown").option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(names["figures"])
    printed = capfd.readouterr().out
    assert "started shown\n" in printed and "shown rows 140 behind 0\n" in printed and "ended None\n" in printed
