"""The schema notation: a small text per API that defines its request and response at every version.

    api 0 Produce                                   its key and name

    request 0-13 flexible 9+                        versions; the first with compact lengths and tagged fields
      transactional_id string? 3+ = null            name, type, versions; no versions: as long as its parent
      topic_data [TopicProduceData]                 an array of structs, whose fields are indented below it
        name string 0-12 ignorable
        partition_data [PartitionProduceData]
          records records?                          ?    may be null;   ?3+  may be null from version 3
      rack string 10+ = "" tag 0                    travels in the tagged section;  tag 0@12+  only from 12
      struct Common                                 a struct that several fields of this message name
        id int32

    record GroupMetadataKey 2-2                     instead of api, request, response: a message without a key

Types: bool int8 int16 uint16 int32 int64 float64 uuid string bytes records, the name of a struct, or [type].
Defaults (`= 5`, `= null`, `= text`) are the values of fields that a version lacks, and of a constructor's keywords;
without one: zero, false, empty, not null. `ignorable`: encoding omits a value that the version lacks, instead of
failing. Source: Kafka's `common/message/*.json`, from which scripts/make_schemas.py writes these files.
"""

from collections.abc import Iterator
from os.path import dirname, exists, join  # pathlib takes a client's import 3 ms
from typing import NamedTuple

DIRECTORY = join(dirname(dirname(__file__)), "schemas")  # noqa: PTH118, PTH120
PRIMITIVES = frozenset(
    ("bool", "int8", "int16", "uint16", "int32", "int64", "float64", "uuid", "string", "bytes", "records")
)
Default = int | float | bool | str | bytes | None
NO_VERSIONS = range(0)


class Field(NamedTuple):
    """One field over all versions of its message. `type` names a primitive or a struct of the message."""

    name: str
    type: str
    is_array: bool
    versions: range
    nullable: range
    default: Default
    tag: int
    tagged: range
    ignorable: bool

    @property
    def is_struct(self) -> bool:
        """Whether the type, or the array's element, is a struct."""
        return self.type not in PRIMITIVES


class MessageSchema(NamedTuple):
    """One message over all its versions. `structs['']` holds its own fields; the other keys are its structs."""

    name: str
    api_key: int | None
    versions: range
    flexible_from: int | None
    structs: dict[str, list[Field]]

    def is_flexible(self, version: int) -> bool:
        """Whether lengths are compact and structs end in tagged fields at this version."""
        return self.flexible_from is not None and version >= self.flexible_from


_ZEROS: dict[str, Default] = {
    "bool": False,
    "float64": 0.0,
    "uuid": bytes(16),
    "string": "",
    "bytes": b"",
    "records": None,
}


def parse(text: str) -> list[MessageSchema]:
    """The messages of one schema file: a request and its response, or one record."""
    messages: list[MessageSchema] = []
    api_key, api = None, ""
    parents: list[tuple[str, range]] = []  # by depth: the struct that lines of that depth belong to, and its versions
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0] == "#":
            continue
        depth = (len(line) - len(line.lstrip(" "))) // 2
        try:
            if words[0] == "api" and depth == 0:
                api_key, api = int(words[1]), words[2]
            elif depth == 0:
                messages.append(_message(words, api_key, api))
                parents = [("", messages[-1].versions)]
            elif words[0] == "struct" and depth == 1:
                messages[-1].structs[words[1]] = []
                parents[1:] = [(words[1], messages[-1].versions)]
            else:
                message = messages[-1]
                struct, versions = parents[depth - 1]
                field = _field(words, versions, message.versions.stop)
                message.structs[struct].append(field)
                parents[depth:] = [(field.type, field.versions)]
                if field.is_struct:
                    message.structs.setdefault(field.type, [])
        except (IndexError, KeyError, ValueError) as error:
            raise ValueError(f"schema line {number}: {line.strip()!r}: {error}") from error
    return messages


def load(name: str) -> MessageSchema:
    """The message of that name, from its file. Raises KeyError if there is none."""
    with open(_file(name), encoding="utf-8") as file:  # noqa: PTH123
        text = file.read()
    for message in parse(text):
        if message.name == name:
            return message
    raise KeyError(name)


def names() -> Iterator[str]:
    """Every message: requests before responses, APIs before records, each in alphabetical order."""
    from pathlib import Path

    for path in sorted(Path(DIRECTORY).glob("*.schema")):
        yield f"{path.stem}Request"
        yield f"{path.stem}Response"
    for path in sorted(Path(DIRECTORY).glob("records/*.schema")):
        yield path.stem


def _file(name: str) -> str:
    """The file that holds a message."""
    if name.isidentifier():
        for suffix in ("Request", "Response"):
            path = join(DIRECTORY, f"{name.removesuffix(suffix)}.schema")  # noqa: PTH118
            if name.endswith(suffix) and exists(path):  # noqa: PTH110
                return path
        path = join(DIRECTORY, "records", f"{name}.schema")  # noqa: PTH118
        if exists(path):  # noqa: PTH110
            return path
    raise KeyError(name)


def _message(words: list[str], api_key: int | None, api: str) -> MessageSchema:
    """`request 0-13 flexible 9+` or `record Name 0-2`."""
    kind, *words = words
    name = words.pop(0) if kind == "record" else api + kind.capitalize()
    versions = _range(words[0], 0)
    flexible = int(words[2].removesuffix("+")) if len(words) > 2 else None
    return MessageSchema(name, api_key, versions, flexible, {"": []})


def _field(words: list[str], parent: range, stop: int) -> Field:
    """One field's line, in words."""
    name, type_, *rest = words
    versions, default, tag, tag_versions, ignorable = parent, None, -1, "", False
    if rest and rest[0][0].isdigit():
        versions = _range(rest.pop(0), stop)
    while rest:
        word = rest.pop(0)
        if word == "ignorable":
            ignorable = True
        elif word == "=":
            default = rest.pop(0)
        elif word == "tag":
            number, _, tag_versions = rest.pop(0).partition("@")
            tag = int(number)
        else:
            raise ValueError(word)
    type_, mark, nullable = type_.partition("?")
    is_array = type_[0] == "["
    type_ = type_.strip("[]")
    return Field(
        name,
        type_,
        is_array,
        versions,
        _range(nullable, stop) if nullable else versions if mark else NO_VERSIONS,
        _default(type_, is_array, default),
        tag,
        _range(tag_versions, stop) if tag_versions else versions if tag >= 0 else NO_VERSIONS,
        ignorable,
    )


def _default(type_: str, is_array: bool, text: str | None) -> Default:
    """The value of a default; for an array or a struct None if it is null, else '' for a new one."""
    if text == "null":
        return None
    if is_array or type_ not in PRIMITIVES:
        return ""
    if text is None:
        return _ZEROS.get(type_, 0)
    if type_ == "string":
        return text
    if type_ == "bool":
        return text == "true"
    return float(text) if type_ == "float64" else int(text)


def _range(text: str, stop: int) -> range:
    """'3', '3-5' or '3+'."""
    if text.endswith("+"):
        return range(int(text[:-1]), stop)
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)
