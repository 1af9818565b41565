"""Lake tables with Iceberg's metadata of the same files."""

from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from headrace.client.producer.producer import Producer
from headrace.config.lake_definition import LakeDefinition
from headrace.lake import iceberg
from headrace.lake.compaction import compact
from headrace.lake.decoders import make_decoder
from headrace.lake.delta.location import Location
from headrace.lake.iceberg import IcebergFace, catalog_properties
from headrace.lake.publisher import AGAIN_S, Publisher
from headrace.lake.rows import WantedRows, read_rows
from tests.lake.lakes import opened, produce, run_once
from tests.lake.test_lake_command import Lake


def produced(broker: str, topic: str, *values: bytes) -> None:
    with Producer(broker) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def write(broker: str, topic: str, definition: LakeDefinition) -> None:
    path = Path(definition.table)
    options = {"partition_by": definition.partition_by}
    run_once(broker, topic, path, make_decoder=lambda known: make_decoder(definition, known), **options)


def face_of(table: Path) -> IcebergFace:
    return IcebergFace(Location.of(table))


def iceberg_rows(face: IcebergFace) -> list[dict[str, object]]:
    """The rows as polars reads them, by the metadata alone, by partition and offset."""
    assert face.metadata is not None
    found = polars.scan_iceberg(face.metadata).collect().to_arrow()  # pyiceberg 0.12 has [] for null in nested lists
    return sorted(found.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


def delta_rows(table: Path, topic: str) -> list[dict[str, object]]:
    found = pa.Table.from_batches(read_rows(opened(table), WantedRows(topic))).to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


@pytest.fixture(autouse=True)
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """polars asks pyiceberg, and does not warn that a package of its own would be faster."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.mark.parametrize("partition_by", [None, "day"])
@pytest.mark.slow
def test_iceberg_has_the_rows_of_each_version(broker: str, topic: str, table: Path, partition_by: str | None) -> None:
    definition = LakeDefinition(table=str(table), format="iceberg", values="json", partition_by=partition_by)
    face = face_of(table)
    assert (face.publish(), face.metadata) == (None, None)
    turns = [
        [b'{"n": 1, "inner": [{"x": 1}]}', b"no JSON"],
        [b'{"n": 2, "inner": [{"x": 2, "y": "z"}], "new": true}'],
        [b'{"n": 0.5, "inner": [{"x": 0.5}]}'],  # wider columns: all files are new
    ]
    for values in turns:
        produced(broker, topic, *values)
        write(broker, topic, definition)
        assert face.publish() == opened(table).version
        assert without_order(iceberg_rows(face)) == without_order(delta_rows(table, topic))
    produced(broker, topic, b'{"n": 3}')
    write(broker, topic, definition)
    assert compact(opened(table))
    assert face.publish() == opened(table).version
    assert without_order(iceberg_rows(face)) == without_order(delta_rows(table, topic))
    assert face.metadata is not None
    assert polars.scan_iceberg(face.metadata).select(polars.col("n").sum()).collect().item() == 6.5
    before = face.metadata
    assert face_of(table).publish() == opened(table).version
    assert face.metadata == before, "what is published is not published again"


def without_order(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [dict(sorted(row.items())) for row in rows]


@pytest.mark.slow
def test_a_publication_catches_up_and_none_goes_back(broker: str, topic: str, table: Path) -> None:
    first, second = face_of(table), face_of(table)
    for turn in range(3):
        produce(broker, topic, 10, first=10 * turn)
        run_once(broker, topic, table)
    old = opened(table)
    produce(broker, topic, 10, first=30)
    run_once(broker, topic, table)
    assert first.publish() == opened(table).version
    second._to(old)
    assert len(iceberg_rows(second)) == 40


@pytest.mark.slow
def test_an_older_snapshot_of_the_catalog_is_refused_and_read_again(
    broker: str, topic: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(broker, topic, 10)
    run_once(broker, topic, table)
    first, second = face_of(table), face_of(table)
    first.publish()
    produce(broker, topic, 10, first=10)
    run_once(broker, topic, table)
    done: list[int | None] = []
    plain = iceberg._set_columns

    def after_another(*arguments: Any) -> None:
        if not done:
            done.append(None)
            done[0] = second.publish()
        plain(*arguments)

    monkeypatch.setattr(iceberg, "_set_columns", after_another)
    assert first.publish() == opened(table).version
    assert done == [opened(table).version]
    assert len(iceberg_rows(first)) == 20


@pytest.mark.slow
def test_the_command_writes_both_faces_and_describes_where(
    broker: str, topic: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(broker, capsys)
    lake("add", topic, "--table", str(table), "--format", "iceberg")
    assert lake("describe", topic)["iceberg_metadata"] is None
    produce(broker, topic, 10)
    lake("run", topic, "--once")
    metadata = lake("describe", topic)["iceberg_metadata"]
    assert metadata.startswith(f"file://{table}/_iceberg/metadata/")
    assert StaticTable.from_metadata(metadata).scan(selected_fields=("offset",)).to_arrow().num_rows == 10
    opened(table).vacuum(0)
    assert len(iceberg_rows(face_of(table))) == 10, "a vacuum of the Delta table leaves Iceberg's files alone"


def test_a_catalog_that_is_away_is_told_and_tried_again() -> None:
    class Face:
        failing = True
        tries = 0

        def publish(self) -> int:
            self.tries += 1
            if self.failing:
                raise OSError("away")
            return 1

    face, now, told = Face(), [0.0], list[Exception]()
    publisher = Publisher(face, told.append, lambda: now[0])  # type: ignore[arg-type]
    for _ in range(3):
        publisher.when_due()
    assert (face.tries, len(told), publisher.is_due) == (1, 1, True)
    with pytest.raises(OSError, match="away"):
        publisher.finish()
    now[0], face.failing = AGAIN_S, False
    publisher.when_due()
    publisher.when_due()
    publisher.finish()
    assert (face.tries, publisher.is_due) == (3, False)


def test_where_the_catalog_is(tmp_path: Path) -> None:
    local, remote = Location.of(tmp_path), Location.of("s3://bucket/orders")
    assert catalog_properties(None, local) == {"type": "sql", "uri": f"sqlite:///{tmp_path}/_iceberg/catalog.db"}
    assert catalog_properties("https://catalog:1", remote) == {"type": "rest", "uri": "https://catalog:1"}
    with pytest.raises(ValueError, match="needs --catalog URI"):
        catalog_properties(None, remote)
    assert (remote.name, IcebergFace(remote, "sqlite://").identifier) == ("orders", ("headrace", "orders"))


@pytest.mark.slow
def test_old_snapshots_are_forgotten(broker: str, topic: str, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    monkeypatch.setattr("headrace.lake.iceberg._EXPIRE_EVERY", 3)
    monkeypatch.setattr("headrace.lake.iceberg.KEPT", timedelta(0))
    face = face_of(table)
    for turn in range(6):
        produce(broker, topic, 2, first=2 * turn)
        run_once(broker, topic, table)
        face.publish()
    assert face.metadata is not None
    assert len(StaticTable.from_metadata(face.metadata).metadata.snapshots) <= 3
    assert len(iceberg_rows(face)) == 12
