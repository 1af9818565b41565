"""A parser of Java properties files, compatible with `java.util.Properties.load`.

    key=value   key:value   key value   key        the first separator that is not escaped ends the key
    # comment   ! comment                          at the beginning of a line that continues no other
    a backslash at the end of a line               continues it; white space before the rest is left out
    \\t \\n \\r \\f \\uXXXX, \\ before any other      an escape, in keys and in values

A repeated key has its last value. Java reads Latin-1; headrace reads a valid UTF-8 file as UTF-8.
"""

from collections.abc import Iterator

from headrace.errors import InvalidConfig

_WHITE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    """The settings of a properties file. Raises `InvalidConfig` for a `\\u` without four hexadecimal digits."""
    found: dict[str, str] = {}
    for line in _lines(text):
        key, value = _split(line)
        found[_unescaped(key)] = _unescaped(value)
    return found


def decode_properties(data: bytes) -> dict[str, str]:
    """The settings of a properties file, from its bytes. Raises `InvalidConfig`."""
    if b"\0" in data:
        raise InvalidConfig("the file is not a text file: it contains null bytes")
    try:
        return read_properties(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return read_properties(data.decode("latin-1"))


def _lines(text: str) -> Iterator[str]:
    """Logical lines: comments and empty lines left out, continued lines joined."""
    parts: list[str] = []
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_WHITE)
        if not parts and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        yield "".join((*parts, line))
        parts.clear()
    if parts:
        yield "".join(parts)


def _split(line: str) -> tuple[str, str]:
    """Splits a line into key and value, both still escaped."""
    end, is_escaped = len(line), False
    for at, character in enumerate(line):
        if not is_escaped and character in "=:" + _WHITE:
            end = at
            break
        is_escaped = character == "\\" and not is_escaped
    rest = line[end:].lstrip(_WHITE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_WHITE)
    return line[:end], rest


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    parts, at = [], 0
    while (slash := text.find("\\", at)) >= 0:
        parts.append(text[at:slash])
        character = text[slash + 1 : slash + 2]
        at = slash + 2
        if character == "u":
            digits = text[at : at + 4]
            if len(digits) < 4 or not all(each in "0123456789abcdefABCDEF" for each in digits):
                raise InvalidConfig(f"{text!r} has a \\u without four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            at += 4
        else:
            parts.append(_ESCAPES.get(character, character))
    parts.append(text[at:])
    # Java's characters are halves of UTF-16: two escapes make one character outside the first 65,536.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
