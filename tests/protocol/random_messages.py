"""Random messages from a schema: every field of a version set, boundaries likelier than the middle.

Driven by one seed of the run (tests/rotation.py): other messages each day, and all versions in seconds. A test takes
all messages of one initial letter, because what pytest does for a test takes ten times as long as a message. `modest`
keeps to the values that other libraries can hold: error codes that exist, times of this century, UUIDs but zero.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from random import Random

from headrace.protocol import messages
from headrace.protocol.apis import OWN_FROM
from headrace.protocol.codec import schema
from headrace.protocol.codec.message import Message, Struct
from headrace.protocol.codec.schema import Field
from headrace.protocol.codec.schema import MessageSchema as Schema
from tests import rotation

SCHEMAS = {name: schema.load(name) for name in schema.names()}
VERSIONS = [(name, version) for name, found in SCHEMAS.items() for version in found.versions]
KAFKAS = [known for known in VERSIONS if (SCHEMAS[known[0]].api_key or 0) < OWN_FROM]
"""Without those of headrace's own APIs."""
INITIALS = sorted({name[0] for name in SCHEMAS})

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXTS = ("", "t", "events", "a.b-c_D", "größe ☃ 🎈", "x" * 126, "y" * 127, "z" * 128, "w" * 300)


def message_class(name: str) -> type[Message]:
    """The class of that name."""
    found: type[Message] = getattr(messages, name)
    return found


def seeds(what: str, count: int, names: Iterable[str], initial: str) -> Iterator[tuple[str, int]]:
    """`count` seeds for each of `names` with that initial letter; those for another `what` are others."""
    for name in names:
        if name.startswith(initial):
            yield from ((name, rotation.drawn(f"{what}/{name}", number)) for number in range(count))


@contextmanager
def named(name: str, version: int, seed: object = None) -> Iterator[None]:
    """Says at the end of any error which message it was."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"{name} version {version}, seed {seed}")
        raise


def random_message(name: str, version: int, seed: int, modest: bool = False) -> Message:
    """A message whose every field that the version carries is random."""
    built = _Builder(SCHEMAS[name], version, Random(seed), modest).struct(message_class(name), "")
    assert isinstance(built, Message)
    return built


class _Builder:
    def __init__(self, message: Schema, version: int, random: Random, modest: bool) -> None:
        self._message = message
        self._version = version
        self._random = random
        self._modest = modest
        self._depth = 0

    def struct(self, cls: type[Struct], name: str) -> Struct:
        """A struct with random fields."""
        fields = [field for field in self._message.structs[name] if self._version in field.versions]
        self._depth += 1
        values = {field.name: self._value(field) for field in fields}
        self._depth -= 1
        return cls(**values)

    def _value(self, field: Field) -> object:
        if self._version in field.nullable and self._random.random() < 0.2:
            return None
        if self._version in field.tagged and self._random.random() < 0.3 and field.default != "":
            return field.default
        if field.is_array:
            size = self._random.choice((0, 1, 1, 2, 3) if self._depth < 3 else (0, 1, 2))
            if not field.is_struct and self._random.random() < 0.05:
                size = 130
            return [self._one(field) for _ in range(size)]
        return self._one(field)

    def _one(self, field: Field) -> object:
        random = self._random
        if field.is_struct:
            return self.struct(getattr(message_class(self._message.name), field.type), field.type)
        match field.type:
            case "bool":
                return random.random() < 0.5
            case "string":
                return random.choice(_TEXTS)
            case "bytes" | "records":
                return random.randbytes(random.choice((0, 1, 7, 126, 127, 128, 1000)))
            case "uuid":
                return random.randbytes(16)
            case "float64":
                return random.choice((0.0, -1.5, 1e300))
            case "uint16":
                return random.choice((0, 1, 9092, 65535))
        return self._integer(field)

    def _integer(self, field: Field) -> int:
        if self._modest and field.name.endswith("error_code"):
            return self._random.randint(-1, 100)
        if self._modest and ("ms" in field.name.split("_") or "timestamp" in field.name):
            return self._random.randint(0, 1 << (30 if field.type == "int32" else 40))
        high = 1 << _BITS[field.type] - 1
        return self._random.choice((0, 1, -1, high - 1, -high, self._random.randrange(-high, high)))
