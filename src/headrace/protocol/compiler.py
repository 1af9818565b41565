"""Turns a schema into classes, and one (message, version) into its decoder and its encoder, when they are first used.

`build` makes the class of a message with the classes of its structs as attributes: slots, a keyword constructor with
the schema's defaults, equality. There is one class for all versions. decoding.py and encoding.py write the functions.
A struct that is a field's default is one shared object that refuses assignment, so that making a FetchResponse
partition does not make three structs that no version in use has.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from headrace.errors import UnsupportedVersion
from headrace.protocol import wire
from headrace.protocol.decoding import DecoderSource
from headrace.protocol.encoding import EncoderSource
from headrace.protocol.message import Codec, Message, Struct
from headrace.protocol.schema import Field
from headrace.protocol.schema import Message as Schema

Function = TypeVar("Function")
_FRESH = object()  # a keyword not given whose default is a list of its own


def build(schema: Schema) -> type[Message]:
    """The class of one message."""
    structs: dict[str, type[Struct]] = {}
    defaults: dict[str, object] = {}

    def make(struct: str) -> type[Struct]:
        if struct not in structs:
            fields = schema.structs[struct]
            for field in fields:
                if field.is_struct:
                    make(field.type)
                shared = field.is_struct and not field.is_array and field.default is not None
                defaults[f"d_{struct}_{field.name}"] = frozen(structs[field.type]) if shared else field.default
            structs[struct] = _class(struct, schema.name, fields, defaults)
        return structs[struct]

    outer = make("")
    assert issubclass(outer, Message)
    outer.API_KEY = schema.api_key
    outer.VERSIONS = schema.versions
    outer.FLEXIBLE_FROM = schema.flexible_from
    for name, inner in structs.items():
        if name:
            setattr(outer, name, inner)
    outer.codecs = _Codecs(schema, structs, defaults)
    return outer


def frozen(cls: type[Struct]) -> Struct:
    """An object of `cls`, all defaults, that cannot be changed."""

    def refuse(self: Struct, name: str, value: object) -> None:
        raise AttributeError(f"a default {cls.__qualname__} is shared: assign a new one instead of its {name}")

    default = cls()
    default.__class__ = type(cls.__name__, (cls,), {"__slots__": (), "__setattr__": refuse})
    return default


def _class(struct: str, message: str, fields: list[Field], defaults: dict[str, object]) -> type[Struct]:
    """One class with a generated constructor: of a struct, or of the message itself where that is ''."""
    names: dict[str, object] = {"_FRESH": _FRESH}
    keywords, lines = [], []
    for field in fields:
        default = f"d_{struct}_{field.name}"
        names[default] = defaults[default]
        value = field.name
        if field.is_array and field.default is not None:
            default, value = "_FRESH", f"[] if {value} is _FRESH else {value}"
        keywords.append(f"{field.name}={default}")
        lines.append(f" self.{field.name} = {value}")
    signature = ", ".join(["self", "*", *keywords] if keywords else ["self"])
    constructor = _function("__init__", "\n".join([f"def __init__({signature}):", *lines, " return None\n"]), names)
    slots = tuple(field.name for field in fields)
    qualified = f"{message}.{struct}" if struct else message
    body = {"__slots__": slots, "__init__": constructor, "__qualname__": qualified, "FIELDS": slots}
    base = Struct if struct else Message
    return type(struct or message, (base,), {**body, "__module__": "headrace.protocol.messages"})


class _Codecs(dict[int, Codec]):
    """Version -> its two functions, made when first asked for."""

    def __init__(self, schema: Schema, structs: dict[str, type[Struct]], defaults: dict[str, object]) -> None:
        super().__init__()
        self._schema = schema
        self._names: dict[str, object] = {f"c_{name}": cls for name, cls in structs.items()} | defaults
        self._names |= {name: getattr(wire, name) for name in wire.FOR_GENERATED} | {"new": object.__new__}

    def __missing__(self, version: int) -> Codec:
        if version not in self._schema.versions:
            raise UnsupportedVersion(f"{self._schema.name} has no version {version}")
        self[version] = codec = Codec(self._decoder(version), self._encoder(version))
        return codec

    def _decoder(self, version: int) -> Callable[[memoryview, int], tuple[Message, int]]:
        source = DecoderSource(self._schema, version)
        text = source.text()
        names = wire.unpackers(source.codes, source.arrays)
        function: Callable[[memoryview, int], tuple[Message, int]] = _function("decode", text, self._names | names)
        return function

    def _encoder(self, version: int) -> Callable[[Message, list[Any], list[int]], None]:
        def lost(field: str) -> UnsupportedVersion:
            return UnsupportedVersion(f"{self._schema.name} v{version} cannot carry {field}")

        source = EncoderSource(self._schema, version)
        text = source.text()
        names = wire.packers(source.codes, source.arrays) | {"lost": lost}
        function: Callable[[Message, list[Any], list[int]], None] = _function("encode", text, self._names | names)
        return function


def _function(name: str, source: str, names: dict[str, object]) -> Any:
    """The function that `source` defines, with `names` as its globals."""
    exec(source, names)  # noqa: S102  # the source is ours, from schemas that ship with the package
    return names[name]
