"""docs/formats.md says what the formats' first descriptions say: sizes, checksums, places of fields."""

from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()


@pytest.mark.parametrize(
    "line",
    [
        "| key `key`, value `value` | 34 | 42 | 76 |",
        "| null key, value `value` | 31 | 39 | 73 |",
        "| ten of 6 bytes without keys | 320 | 400 | 191 |",
        "    34 bytes, CRC 592888119",
        "The smallest message, with null key and null value, has 14 bytes in v0 and 22 in v1, "
        "or 26 and 34 with the offset and the size before it.",
        "| 17 | `crc` | uint32 |  |",
        "| 21 | `attributes` | int16 | yes |",
        "| 57 | `record_count` | int32 | yes |",
        "| 61 | records |  | yes |",
        "|  | 18 | `timestamp` | int64 | ms since 1970; -1 for none |",
        "| 5 | 6 | `crc` | uint32 | of the payload alone |",
        "| 300 | 600 | `d8 04` | 2 |",
        "| -2,147,483,648 | 4,294,967,295 | `ff ff ff ff 0f` | 5 |",
        "magic 0  00 00 00 0a 00 1d 77 58 34 76 61 6c 75 65",
    ],
)
def test_the_page_has_the_line(line: str) -> None:
    assert f"\n{line}\n" in PAGE


def test_every_format_and_codec_was_measured() -> None:
    measured = [line.split(" | ")[:3] for line in PAGE.splitlines() if line.startswith(("| yes |", "| no |"))]
    formats = [(codec, f"v{magic}") for codec in ("none", "gzip", "snappy", "lz4") for magic in (0, 1, 2)]
    assert measured == [[f"| {keys}", *each] for keys in ("no", "yes") for each in [*formats, ("zstd", "v2")]]
