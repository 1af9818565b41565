"""Properties files are read as Java reads them."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.config import decode_properties, read_properties
from headrace.errors import InvalidConfig
from tests.peers import kafka

HERE = Path(__file__).parent
FILES = {
    "# a comment\n! another\nlog.dirs=/a,\\\n  /b\nbroker.id : 3\n\n": {"log.dirs": "/a,/b", "broker.id": "3"},
    "a=1\r\nb:2\rc 3\n\td\t=\t4\fe=5": {"a": "1", "b": "2", "c": "3", "d": "4\fe=5"},
    "key": {"key": ""},
    "key=": {"key": ""},
    "=value": {"": "value"},
    "a = b = c": {"a": "b = c"},
    "a==b": {"a": "=b"},
    "a : = b": {"a": "= b"},
    "trailing=white \t": {"trailing": "white \t"},
    "k\\=e\\:y\\ s=v\\=a\\:l": {"k=e:y s": "v=a:l"},
    "path=C:\\\\data\\\\": {"path": "C:\\data\\"},
    "odd=one\\\\\\\ntwo": {"odd": "one\\two"},
    "t=\\t\\n\\r\\f\\q\\\"": {"t": '\t\n\r\fq"'},
    "u=\\u0041\\u00e9\\uD83D\\uDE00": {"u": "Aé😀"},
    "a=1\\\n# no comment": {"a": "1# no comment"},
    "a=1\\\n\nb=2": {"a": "1", "b": "2"},
    "# comment \\\na=1": {"a": "1"},
    "\\\na=1": {"a": "1"},
    "a=1\\": {"a": "1"},
    "a=1\na=2": {"a": "2"},
    "a\x0b=1\x85b=2": {"a\x0b": "1\x85b=2"},
    "  # indented comment\n   ": {},
    "": {},
    "\\": {"": ""},
}  # fmt: skip


@pytest.mark.parametrize("text", FILES)
def test_a_file_has_these_settings(text: str) -> None:
    assert read_properties(text) == FILES[text]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\u", "a=\\u-123"])
def test_an_escape_without_its_digits_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="four hexadecimal digits"):
        read_properties(text)


def test_a_file_is_latin_1_where_it_is_not_utf_8() -> None:
    assert decode_properties("é=ü".encode("latin-1")) == decode_properties("é=ü".encode()) == {"é": "ü"}
    assert decode_properties(b"\xef\xbb\xbfa=1") == {"a": "1"}


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="not a text file"):
        decode_properties(b"a=1\0")


@given(st.text(alphabet=" \t\n\r\\#!=:uab1", max_size=30))
@example("\\u")
def test_any_text_is_settings_or_refused(text: str) -> None:
    try:
        found = read_properties(text)
    except InvalidConfig:
        return
    assert all(isinstance(each, str) for pair in found.items() for each in pair)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or "")
def test_java_reads_the_same_from_each(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.properties" for number in range(len(FILES))]
    for file, text in zip(files, FILES, strict=True):
        file.write_bytes(text.encode("latin-1"))
    command = ["java", str(HERE / "ReadProperties.java"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    answers = [_unhexed(each) for each in done.stdout.split("end\n")[:-1]]
    assert answers == list(FILES.values())


def _unhexed(block: str) -> dict[str, str]:
    pairs = (line.split("=") for line in block.splitlines() if line)
    return {_text(key): _text(value) for key, value in pairs}


def _text(digits: str) -> str:
    return bytes.fromhex(digits).decode("utf-16-be")
