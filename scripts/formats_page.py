"""Generates the tables of docs/formats.md from the code: layouts, example bytes, sizes, and the measured experiment.

The function NAME generates the block between `<!-- made from the code: NAME -->` and `<!-- end -->`.
"""

import inspect
import json
import re
import sys
import textwrap
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from struct import Struct, calcsize

from headrace.records import any_format
from headrace.records.format2 import header
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.build import build_batch
from headrace.records.format2.columns import column_of
from headrace.records.legacy import conversion, format_07
from headrace.records.legacy.message import MESSAGE_OVERHEAD_BYTES
from headrace.records.legacy.message_set import encode_message_set

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.records import varint

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "formats.md"
EXPERIMENT = ROOT / "benchmarks" / "records" / "formats.json"
BLOCK = re.compile(r"(<!-- made from the code: (?P<name>[^\n]+) -->\n).*?(<!-- end -->)", re.DOTALL)

TYPES = {"b": "int8", "B": "int8", "h": "int16", "i": "int32", "I": "uint32", "q": "int64"}
EXAMPLE = Record(0, 1524709879130, b"key", b"value")
TEN = [Record(i, 1524712213771, None, b"value%d" % i) for i in range(10)]


def formats_page() -> str:
    """The page with new tables."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{BLOCKS[found['name']]()}\n\n{found[3]}", PAGE.read_text())


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def layout(packed: Struct, names: Sequence[str]) -> list[tuple[int, str, str]]:
    """The position, name and type of each field of a struct."""
    letters = packed.format.removeprefix(">")
    at = [calcsize(">" + letters[:i]) for i in range(len(letters))]
    return [(start, f"`{name}`", TYPES[letter]) for start, name, letter in zip(at, names, letters, strict=True)]


def v2_header() -> str:
    """The 61 bytes of a batch header."""
    rows = layout(header._header, header.BatchHeader._fields)
    checked = [(*row, "yes" if row[0] >= header.CHECKED_FROM else "") for row in rows]
    return table(
        ["byte", "field", "type", "under the CRC-32C"], [*checked, (header.HEADER_BYTES, "records", "", "yes")]
    )


def v0_and_v1() -> str:
    """An entry of format 0 or 1."""
    names = ("offset", "message_size", "crc", "magic", "attributes", "timestamp")
    found = []
    for magic, packed in enumerate(any_format._heads):
        rows = layout(packed, names[: 5 + magic])
        at = packed.size
        rows += [(at, "`key_length`", "int32"), (at + 4, "key, then `value_length` and value", "int32 each")]
        found.append({name: (start, kind) for start, name, kind in rows})
    both = [(found[0].get(name, ("", ""))[0], start, name, kind) for name, (start, kind) in found[1].items()]
    notes = {
        "`message_size`": "what follows it",
        "`crc`": "CRC-32 of what follows it",
        "`attributes`": "0 to 2 codec, 3 timestamp type (v1)",
        "`timestamp`": "ms since 1970; -1 for none",
        "`key_length`": "-1: null",
    }
    rows_of_both = [(zero, one, name, kind, notes.get(name, "")) for zero, one, name, kind in both]
    smallest = [header.LOG_OVERHEAD_BYTES + size for size in MESSAGE_OVERHEAD_BYTES]
    return table(["byte in v0", "in v1", "field", "type", ""], rows_of_both) + (
        f"\n\nThe smallest message, with null key and null value, has {MESSAGE_OVERHEAD_BYTES[0]} bytes in v0 and "
        f"{MESSAGE_OVERHEAD_BYTES[1]} in v1, or {smallest[0]} and {smallest[1]} with the offset and the size before it."
    )


def v2_record() -> str:
    """A record of a batch, field by field."""
    data = bytes(encode_batch([EXAMPLE]))
    rows: list[tuple[object, ...]] = []
    pos = header.HEADER_BYTES
    for name in ("length", "attributes", "timestamp_delta", "offset_delta", "key_length", "value_length", "headers"):
        start = pos
        if name == "attributes":
            value, pos = data[pos], pos + 1
        else:
            value, pos = varint.read_varlong(data, pos)
        kind = "int8" if name == "attributes" else "varlong" if name == "timestamp_delta" else "varint"
        rows.append((start, f"`{name}`", kind, f"`{data[start:pos].hex()}`", value))
        if name in ("key_length", "value_length"):
            part = data[pos : pos + value]
            rows.append((pos, name.partition("_")[0], "bytes", f"`{part.hex()}`", f"`{part.decode()}`"))
            pos += value
    assert pos == len(data)
    return table(["byte", "field", "type", "bytes", "value"], rows) + f"\n\nThe whole batch has {len(data)} bytes."


def messages() -> str:
    """The example message in v0 and v1."""
    lines = []
    for magic in (0, 1):
        data = bytes(encode_message_set([EXAMPLE], magic=magic))
        parts = [Struct(f">{letter}").size for letter in any_format._heads[magic].format.removeprefix(">")]
        words, at = [], 0
        for size in (*parts, 4, 3, 4, 5):
            words.append(data[at : at + size].hex())
            at += size
        crc = int.from_bytes(data[12:16], "big")
        lines += [f"v{magic}  {' '.join(words)}", f"    {len(data)} bytes, CRC {crc}"]
    return "```text\n" + "\n".join(lines) + "\n```"


def of_07() -> str:
    """Messages of Kafka 0.7, with both magics."""
    names: dict[str, list[object]] = {}
    for magic, (packed, fields) in enumerate(format_07.LAYOUTS):
        for start, name, kind in [*layout(packed, fields), (packed.size, "payload", "the rest")]:
            names.setdefault(name, ["", "", name, kind])[magic] = start
    order = ["`length`", "`magic`", "`attributes`", "`crc`", "payload"]
    notes = {
        "`length`": "what follows it",
        "`attributes`": "0 and 1: none, gzip, snappy",
        "`crc`": "of the payload alone",
    }
    rows = [(*names[name], notes.get(name, "")) for name in order]
    examples = [f"magic {m}  {format_07.encode_entry(b'value', magic=m).hex(' ')}" for m in (0, 1)]
    return table(["byte in magic 0", "in magic 1", "field", "type", ""], rows) + (
        "\n\nThe payload `value` in each:\n\n```text\n" + "\n".join(examples) + "\n```"
    )


def varints() -> str:
    """Some numbers, zigzag-encoded and as varints."""
    numbers = [0, -1, 1, -2, 2, 63, -64, 64, 300, 8191, 8192, 1_048_575, (1 << 31) - 1, -(1 << 31)]
    rows = [
        (f"{n:,}", f"{varint.zigzag(n):,}", f"`{varint.encode_varint(n).hex(' ')}`", varint.varint_size(n))
        for n in numbers
    ]
    return table(["number", "folded", "written", "bytes"], rows)


def conversions() -> str:
    """The rules of conversion, from the docstring of the module."""
    text = inspect.cleandoc(conversion.__doc__ or "").partition("\n\n")[2]
    drawing, _, prose = text.partition("\n\n")
    return f"```text\n{textwrap.dedent(drawing)}\n```\n\n{prose}"


def sizes() -> str:
    """The size of a few records in each format."""
    rows = []
    for what, records in (
        ("key `key`, value `value`", [EXAMPLE]),
        ("null key, value `value`", [EXAMPLE._replace(key=None)]),
        ("ten of 6 bytes without keys", TEN),
    ):
        old = [len(encode_message_set(records, magic=magic)) for magic in (0, 1)]
        rows.append((what, *old, len(encode_batch(records))))
    for count in (1, 16, 1000):
        values = column_of([bytes(1024)] * count)
        batch = build_batch(None, values, 0, count, array("q", [0]) * count)
        old = [count * (header.LOG_OVERHEAD_BYTES + size + 1024) for size in MESSAGE_OVERHEAD_BYTES]
        rows.append((f"{count:,} of 1 KiB without keys", *(f"{n:,}" for n in (*old, len(batch)))))
    return table(["records, uncompressed", "v0", "v1", "v2"], rows)


def experiment() -> str:
    """The result of a full run of `headrace bench formats`."""
    if not EXPERIMENT.exists():
        return "Not measured yet."
    found = json.loads(EXPERIMENT.read_text())
    rows = [
        (
            "yes" if row["keys"] else "no",
            row["codec"],
            row["format"],
            f"{row['disk_bytes'] / 1e6:,.1f}",
            f"{(row['disk_bytes'] - row['record_bytes']) / row['records']:+,.1f}",
            f"{row['encode_mb_per_s']:,.0f}",
            f"{row['decode_mb_per_s']:,.0f}",
        )
        for row in found["results"]
    ]
    first = found["results"][0]
    headings = [
        "keys",
        "codec",
        "format",
        "MB on disk",
        "bytes a record beside its own",
        "encoded, MB/s",
        "decoded, MB/s",
    ]
    return (
        f"{first['records']:,} records of {found['value_bytes']:,} bytes, in batches of {found['batch_bytes']:,} bytes "
        f"(Java's `batch.size`), keys of {found['key_bytes']} bytes where there are some. Rates are MB of keys and "
        "values for each second of CPU, one thread, from columns and to columns, checksums taken and compared.\n\n"
        + table(headings, rows)
        + "\n\n"
        + lessons({(row["format"], row["codec"], row["keys"]): row for row in found["results"]})
    )


def lessons(rows: dict[tuple[str, str, bool], dict[str, float]]) -> str:
    """The conclusions from the numbers."""

    def beside(format_: str, codec: str = "none") -> float:
        row = rows[format_, codec, False]
        return (row["disk_bytes"] - row["record_bytes"]) / row["records"]

    def share(codec: str, format_: str = "v2") -> str:
        row = rows[format_, codec, False]
        return f"{row['disk_bytes'] / row['record_bytes']:.0%}"

    def ratio(rate: str) -> float:
        return rows["v2", "zstd", False][rate] / rows["v2", "gzip", False][rate]

    saved = beside("v1") - beside("v2")
    spread = [rows[f, "gzip", False]["disk_bytes"] for f in ("v0", "v1", "v2")]
    return "\n".join(
        [
            "Conclusions:",
            "",
            f"- The overhead of a record is {beside('v2'):.1f} bytes in v2, including its share of the batch header, "
            f"{beside('v0'):.0f} bytes in v0 and {beside('v1'):.0f} in v1. With records of 1 KiB, v2 saves "
            f"{saved / (1024 + beside('v1')):.1%} of the disk space of v1. For large records the formats differ in "
            "features, not in size. v2 saves most for small records in full batches (see the table above).",
            f"- The codec matters more than the format. Relative to uncompressed v2, lz4 needs {share('lz4')}, snappy "
            f"{share('snappy')}, gzip {share('gzip')} and zstd {share('zstd')}. With gzip the formats differ by at "
            f"most {(max(spread) - min(spread)) / min(spread):.1%}, because the repeated parts of records compress "
            "well.",
            f"- Prefer zstd to gzip: it compresses as well, and is {ratio('encode_mb_per_s'):.1f} times as fast to "
            f"write and {ratio('decode_mb_per_s'):.1f} times as fast to read. It requires v2, so a topic with "
            "consumers from before 0.11 cannot use it.",
        ]
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "v2 header": v2_header,
    "v2 record": v2_record,
    "v0 and v1": v0_and_v1,
    "messages": messages,
    "0.7": of_07,
    "varints": varints,
    "conversion": conversions,
    "sizes": sizes,
    "experiment": experiment,
}

assert set(BLOCKS) == {found["name"] for found in BLOCK.finditer(PAGE.read_text())}, "docs/formats.md lacks a block"
