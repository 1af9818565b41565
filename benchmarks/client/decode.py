"""Measures the decoding of JSON and Avro values into Arrow columns beside a Python object per record, in turns.

    python benchmarks/client/decode.py [--rounds N] [--records N]

Without a broker: the values are a column, as `poll_columns` gives them. Each round runs every case once in this
process; the table has the medians of the rounds' ratios of CPU time to the first case of its format, and their spread.
The first cases make dictionaries; with "columns" these become an Arrow table, which is what the decoders return. Writes
`decode.json` beside this file (or to --json PATH).
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import orjson
import pyarrow

from headrace.columns.avro_columns import AvroDecoder
from headrace.columns.json_columns import JsonDecoder

RESULTS = Path(__file__).with_name("decode.json")
SCHEMA = pyarrow.schema(
    [
        ("order", pyarrow.int64()),
        ("customer", pyarrow.string()),
        ("price", pyarrow.float64()),
        ("paid", pyarrow.bool_()),
        ("shop", pyarrow.struct([("city", pyarrow.string()), ("floor", pyarrow.int32())])),
    ]
)
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": ["null", "double"]},
        {"name": "paid", "type": "boolean"},
        {
            "name": "shop",
            "type": {
                "type": "record",
                "name": "Shop",
                "fields": [{"name": "city", "type": "string"}, {"name": "floor", "type": "int"}],
            },
        },
    ],
}
PARSED = fastavro.parse_schema(AVRO)


def order(number: int) -> dict[str, Any]:
    shop = {"city": "Newark", "floor": number % 9}
    customer = f"customer-{number % 1000}"
    return {"order": number, "customer": customer, "price": number / 4, "paid": number % 2 == 0, "shop": shop}


def avro_bytes(value: dict[str, Any]) -> bytes:
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, PARSED, value)
    return buffer.getvalue()


def avro_record(value: bytes) -> Any:
    return fastavro.schemaless_reader(BytesIO(value), PARSED, None)


def without_polars() -> AvroDecoder:
    """As on a machine that lacks it."""
    decoder = AvroDecoder(AVRO)
    decoder._is_fast = False
    return decoder


def cases(count: int) -> dict[str, dict[str, Callable[[], Any]]]:
    """The cases of each format, of which the first is what the others are measured by."""
    orders = [order(number) for number in range(count)]
    json_values = pyarrow.array([orjson.dumps(value) for value in orders], pyarrow.binary())
    poison = [b"no JSON" if row % 100 == 7 else value for row, value in enumerate(json_values.to_pylist())]
    poisoned = pyarrow.array(poison, pyarrow.binary())
    other = [b'{"order":"x"}' if row % 1000 == 7 else value for row, value in enumerate(json_values.to_pylist())]
    mistyped = pyarrow.array(other, pyarrow.binary())
    avro_values = pyarrow.array([avro_bytes(value) for value in orders], pyarrow.binary())
    as_json, any_case = JsonDecoder(SCHEMA), JsonDecoder(SCHEMA, keeps_other_case=False)
    as_avro, alone = AvroDecoder(AVRO), without_polars()

    def rows(read: Callable[[bytes], Any], values: pyarrow.Array) -> list[Any]:
        return [read(value) for value in values.to_pylist()]

    def table(read: Callable[[bytes], Any], values: pyarrow.Array) -> pyarrow.Table:
        return pyarrow.Table.from_pylist(rows(read, values), SCHEMA)

    return {
        "JSON": {
            "json.loads": lambda: rows(json.loads, json_values),
            "json.loads, columns": lambda: table(json.loads, json_values),
            "orjson.loads": lambda: rows(orjson.loads, json_values),
            "orjson.loads, columns": lambda: table(orjson.loads, json_values),
            "JsonDecoder": lambda: as_json.decode(json_values),
            "JsonDecoder, the case of keys ignored": lambda: any_case.decode(json_values),
            "JsonDecoder, 1 % no JSON": lambda: as_json.decode(poisoned),
            "JsonDecoder, 0.1 % of another type": lambda: as_json.decode(mistyped),
        },
        "Avro": {
            "fastavro": lambda: rows(avro_record, avro_values),
            "fastavro, columns": lambda: table(avro_record, avro_values),
            "AvroDecoder by fastavro": lambda: alone.decode(avro_values),
            "AvroDecoder by polars": lambda: as_avro.decode(avro_values),
        },
    }


def measured(case: Callable[[], Any], count: int) -> float:
    """Microseconds of CPU for a record."""
    before = time.process_time()
    case()
    return (time.process_time() - before) / count * 1e6


def main() -> None:
    """Run the rounds, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    formats = cases(given.records)
    costs: dict[str, dict[str, list[float]]] = {name: {case: [] for case in each} for name, each in formats.items()}
    for _ in range(given.rounds):
        for name, each in formats.items():
            for case, function in each.items():
                costs[name][case].append(measured(function, given.records))
    figures = {name: figures_of(each) for name, each in costs.items()}
    about = {
        "rounds": given.rounds,
        "records": given.records,
        "cores": os.cpu_count(),
        "load_before_and_after": [round(load, 1), round(os.getloadavg()[0], 1)],
        "pyarrow": pyarrow.__version__,
        "fastavro": fastavro.__version__,
        "orjson": orjson.__version__,
    }
    given.json.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n")
    for name, each in figures.items():
        for case, figure in each.items():
            low, high = figure["ratio_spread"]
            print(f"{name:5} {case:40} {figure['cpu_us_per_record']:7.2f} µs {figure['ratio']:6.2f} × ({low}-{high})")


def figures_of(costs: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, and ratios to the first case of the same round."""
    first = next(iter(costs.values()))
    found = {}
    for case, each in costs.items():
        ratios = [base / cost for base, cost in zip(first, each, strict=True)]
        found[case] = {
            "cpu_us_per_record": round(statistics.median(each), 2),
            "ratio": round(statistics.median(ratios), 2),
            "ratio_spread": [round(min(ratios), 2), round(max(ratios), 2)],
        }
    return found


if __name__ == "__main__":
    main()
