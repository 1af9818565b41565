"""The measurement of `headrace bench formats`: the same records in every message format and codec.

    values    one in three bytes random hexadecimal, the rest words that come again: gzip makes a third of them
    keys      16 bytes, or none
    batches   as a producer makes them, `batch_bytes` of uncompressed records each; formats 0 and 1 without a codec know
              no batches

A round of records is written and read, then the next, so that memory does not grow with their number. Bytes are what a
segment file would hold; rates are megabytes of keys and values for each second of CPU that one thread used, so that
what else the machine does counts little: from columns and to columns, the checksums taken and compared.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.records.any_format import scan_any
from headrace.records.codecs.compression import Codec
from headrace.records.format2.build import build_batch
from headrace.records.format2.columns import BinaryColumn, column_of
from headrace.records.legacy.message_columns import build_message_set

KEY_BYTES = 16
ROUND_BYTES = 4 << 20
_NOW_MS = 1_700_000_000_000
_WORDS = (
    b"flight carrier origin departure arrival delay minutes gate runway weather seats status on time cancelled ".split()
)


class BenchPlan(NamedTuple):
    """The number and sizes of the records to write."""

    records: int
    value_bytes: int
    batch_bytes: int


class Case(NamedTuple):
    """One message format and codec to write records in, with or without keys."""

    magic: int
    codec: Codec
    has_keys: bool


class Result(NamedTuple):
    """The result of one case."""

    format: str
    codec: str
    keys: bool
    records: int
    record_bytes: int
    """Bytes of keys and values."""
    disk_bytes: int
    encode_mb_per_s: float
    decode_mb_per_s: float

    @property
    def overhead_bytes(self) -> float:
        """Bytes per record beside its key and value; negative if the codec saves more than the format adds."""
        return (self.disk_bytes - self.record_bytes) / self.records


def cases() -> Iterator[Case]:
    """Every format with each codec that it supports, without keys and with keys."""
    for has_keys in (False, True):
        for codec in Codec:
            for magic in (0, 1, 2):
                if codec is not Codec.ZSTD or magic == 2:
                    yield Case(magic, codec, has_keys)


def run(plan: BenchPlan, case: Case) -> Result:
    """Writes and reads the records of one case."""
    rows = max(1, min(plan.records, ROUND_BYTES // plan.value_bytes))
    values = _values(rows, plan.value_bytes)
    keys = column_of([b"key-%012d" % row for row in range(rows)]) if case.has_keys else None
    row_bytes = plan.value_bytes + (KEY_BYTES if case.has_keys else 0)
    in_batch = max(1, plan.batch_bytes // row_bytes)
    offset = disk_bytes = 0
    encode_s = decode_s = 0.0
    while offset < plan.records:
        count = min(rows, plan.records - offset)
        times = array("q", range(_NOW_MS + offset, _NOW_MS + offset + count))
        started = time.thread_time()
        data = b"".join(_encoded(case, keys, values, count, in_batch, times, offset))
        encoded = time.thread_time()
        found = scan_any(data, keys=case.has_keys)
        decode_s += time.thread_time() - encoded
        encode_s += encoded - started
        if found.count != count or found.values is None or found.values.value(count - 1) != values.value(count - 1):
            raise AssertionError(f"{case}: the records that were read differ from those that were written")
        disk_bytes += len(data)
        offset += count
    size = plan.records * row_bytes
    return Result(
        f"v{case.magic}", case.codec.name.lower(), case.has_keys, plan.records, size, disk_bytes,
        round(size / encode_s / 1e6, 1), round(size / decode_s / 1e6, 1),
    )  # fmt: skip


def _encoded(
    case: Case,
    keys: BinaryColumn | None,
    values: BinaryColumn,
    count: int,
    in_batch: int,
    times: array[int],
    offset: int,
) -> Iterator[bytearray]:
    for start in range(0, count, in_batch):
        stop = min(count, start + in_batch)
        base = offset + start
        if case.magic == 2:
            yield build_batch(keys, values, start, stop, times, codec=case.codec, base_offset=base)
        else:
            yield build_message_set(
                keys, values, start, stop, times, magic=case.magic, codec=case.codec, base_offset=base
            )


def _values(rows: int, size: int) -> BinaryColumn:
    rng = random.Random(1)
    found = []
    for row in range(rows):
        text = b"%d " % row + rng.randbytes(size // 6).hex().encode()
        while len(text) < size:
            text += b" " + rng.choice(_WORDS)
        found.append(text[:size])
    return column_of(found)


def draw(results: Sequence[Result], plan: BenchPlan, file: Path) -> None:
    """Bytes on disk, encoding and decoding rates by format and codec, as a PNG. ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10})
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.6), layout="constrained")
    shown = [each for each in results if each.keys]
    codecs = list(dict.fromkeys(each.codec for each in shown))
    panels = (
        ("Bytes on disk for each record", "bytes", [each.disk_bytes / each.records for each in shown]),
        ("Encoding", "MB of keys and values a second", [each.encode_mb_per_s for each in shown]),
        ("Decoding", "MB of keys and values a second", [each.decode_mb_per_s for each in shown]),
    )
    for axis, (title, unit, heights) in zip(axes, panels, strict=True):
        for place, (name, color) in enumerate((("v0", "#9aa5b1"), ("v1", "#52a9a0"), ("v2", "#c8553d"))):
            bars = [
                (codecs.index(each.codec) + (place - 1) * 0.27, height)
                for each, height in zip(shown, heights, strict=True)
                if each.format == name
            ]
            axis.bar(*zip(*bars, strict=True), width=0.25, color=color, label=name)
        axis.set(title=title, ylabel=unit)
        axis.set_xticks(range(len(codecs)), codecs)
    axes[0].legend(frameon=False)
    figure.suptitle(
        f"{plan.records:,} records of {plan.value_bytes:,} bytes with keys of {KEY_BYTES}, "
        f"batches of {plan.batch_bytes:,} bytes",
        fontweight="bold",
    )
    figure.savefig(file, dpi=110)
    plt.close(figure)
