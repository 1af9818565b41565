"""`headrace bench formats` with few records: each combination comes back as it went, in the bytes of its format."""

import json
from pathlib import Path

import pytest

from headrace.cli.app import run

pytestmark = pytest.mark.slow


def results(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[tuple[str, str, bool], dict[str, float]]:
    assert run(["bench", "formats", "--json", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    return {(row["format"], row["codec"], row["keys"]): row for row in found["results"]}


def test_every_format_codec_and_key(capsys: pytest.CaptureFixture[str]) -> None:
    found = results(capsys, "--records", "1000", "--value-bytes", "100", "--batch-bytes", "2000")
    codecs = [(f"v{magic}", codec) for codec in ("none", "gzip", "snappy", "lz4") for magic in (0, 1, 2)]
    assert list(found) == [(*each, keys) for keys in (False, True) for each in [*codecs, ("v2", "zstd")]]
    plain = {format_: found[format_, "none", False]["disk_bytes"] for format_ in ("v0", "v1", "v2")}
    assert plain["v0"] == 1000 * (12 + 14 + 100) and plain["v1"] == 1000 * (12 + 22 + 100)
    assert plain["v2"] < plain["v0"]
    assert found["v0", "none", True]["disk_bytes"] == 1000 * (12 + 14 + 16 + 100)
    for (_, codec, _), row in found.items():
        assert (row["disk_bytes"] < row["record_bytes"]) == (codec != "none")
        assert row["encode_mb_per_s"] > 0 and row["decode_mb_per_s"] > 0


@pytest.mark.slow
def test_a_table_and_a_chart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    chart = tmp_path / "chart.png"
    assert run(["bench", "formats", "-n", "50", "--chart", str(chart)]) == 0
    out = capsys.readouterr().out
    assert "50 records of 1,024 bytes" in out and "zstd" in out
    assert chart.read_bytes().startswith(b"\x89PNG")
