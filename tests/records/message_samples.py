"""Messages of formats 0 and 1 for the tests of this directory, and the same as releases of Apache Kafka built them."""

import importlib.util
from pathlib import Path
from types import ModuleType

from hypothesis import strategies as st

from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record
from headrace.records.format2.columns import RecordColumns
from headrace.records.legacy import message_kernel
from headrace.records.legacy.message import seal_message

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
GOLDEN_SETS = {
    name: bytes.fromhex(data)
    for name, data in (
        line.split() for line in (Path(__file__).parent / "golden" / "message_sets.txt").read_text().splitlines()
    )
}
"""What golden/MakeMessageSets.java, MakeSetsOf08.java and MakeSetsOf010.java wrote: RELEASE/vMAGIC/CODEC[/…]."""
APPEND_TIME_MS = 1_800_000_000_000


def golden_rows(name: str) -> list[Record]:
    """The records of a golden set."""
    parts = name.split("/")
    first = 0 if parts[0] in ("0.8.2.2", "0.9.0.1") else 1000
    return [_golden_row(i, first, parts) for i in range(0, 12, 3 if "gaps" in parts else 1)]


def _golden_row(i: int, first: int, parts: list[str]) -> Record:
    created = 1_700_000_000_000 + (i * 13 if i % 2 == 0 else -i)
    return Record(
        first + i,
        -1 if parts[1] == "v0" else APPEND_TIME_MS if "append-time" in parts else created,
        None if i % 3 == 0 else f"key-{i}".encode(),
        None if i % 7 == 0 else f"value-{i}".encode() * (i % 5),
    )


def rows_of(columns: RecordColumns) -> list[Record]:
    """A scan's rows as records; keys and values must have been asked for."""
    keys, values = columns.keys, columns.values
    assert keys is not None and values is not None
    return [
        Record(columns.offsets[row], columns.timestamps_ms[row], keys.value(row), values.value(row))
        for row in range(columns.count)
    ]


def uncompiled_message_kernel() -> ModuleType:
    """The kernel's source run as plain Python, beside the compiled one."""
    source = Path(message_kernel.__file__).with_name("message_kernel.py")
    spec = importlib.util.spec_from_file_location("headrace_uncompiled_message_kernel", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def resealed(message_set: bytearray) -> bytearray:
    """A set of one message, its size and CRC put right, as a producer that lies would send it."""
    message_set[8:12] = (len(message_set) - 12).to_bytes(4, "big")
    seal_message(message_set, 12, len(message_set))
    return message_set


timestamps = st.just(-1) | st.integers(0, (1 << 63) - 1)
maybe_bytes = st.none() | st.binary(max_size=40)
rows = st.lists(
    st.builds(Record, st.just(0), timestamps, maybe_bytes, maybe_bytes, st.just(())), min_size=1, max_size=20
).map(lambda rows: [row._replace(offset=i) for i, row in enumerate(rows)])
magics = st.sampled_from([0, 1])
codecs = st.sampled_from(CODECS)


def as_stored(records: list[Record], magic: int, log_append_time_ms: int | None = None) -> list[Record]:
    """What comes back of some records: format 0 has no timestamps, log append time is everybody's."""
    if magic == 0:
        return [row._replace(timestamp_ms=-1) for row in records]
    if log_append_time_ms is None:
        return records
    return [row._replace(timestamp_ms=log_append_time_ms) for row in records]
