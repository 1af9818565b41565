"""The compiler: makes classes from a schema, and a decoder and an encoder for each (message, version), at first use.

`build` makes the class of a message with the classes of its structs as attributes: slots, a keyword constructor with
the schema's defaults, equality. There is one class for all versions. decoding.py and encoding.py write the functions.
A struct that is a field's default is one shared object that refuses assignment. So a FetchResponse partition does not
create three structs that no version in use has.
"""

from typing import Any

from headrace.errors import UnsupportedVersion
from headrace.protocol.codec import wire
from headrace.protocol.codec.decoding import DecoderSource
from headrace.protocol.codec.encoding import EncoderSource
from headrace.protocol.codec.message import Message, SlicedCodec, Struct, VersionCodec
from headrace.protocol.codec.schema import Field
from headrace.protocol.codec.schema import MessageSchema as Schema
from headrace.protocol.codec.wire import FIXED

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
    sources = _Sources(schema, structs, defaults)
    outer.codecs, outer.sliced_codecs = _Codecs(sources), _SlicedCodecs(sources)
    return outer


def frozen(cls: type[Struct]) -> Struct:
    """An immutable object of `cls` with all defaults."""

    def refuse(self: Struct, name: str, value: object) -> None:
        raise AttributeError(
            f"the default {cls.__qualname__} is shared: assign a new one instead of setting its {name}"
        )

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
    body["ARRAYS"] = tuple(field.name for field in fields if field.is_array and field.type not in FIXED)
    base = Struct if struct else Message
    return type(struct or message, (base,), {**body, "__module__": "headrace.protocol.messages"})


class _Sources:
    """Generates the functions of one message."""

    def __init__(self, schema: Schema, structs: dict[str, type[Struct]], defaults: dict[str, object]) -> None:
        self._schema = schema
        self._names: dict[str, object] = {f"c_{name}": cls for name, cls in structs.items()} | defaults
        self._names |= {name: getattr(wire, name) for name in wire.FOR_GENERATED} | {"new": object.__new__}

    def decoder(self, version: int, *, in_slices: bool = False) -> Any:
        """The function that decodes one version, or the generator that does so in slices."""
        self._check(version)
        source = DecoderSource(self._schema, version, in_slices=in_slices)
        text = source.text()
        return _function("decode", text, self._names | wire.unpackers(source.codes, source.arrays))

    def encoder(self, version: int, *, in_slices: bool = False) -> Any:
        """The function that encodes one version, or the generator that does so in slices."""
        self._check(version)

        def lost(field: str) -> UnsupportedVersion:
            return UnsupportedVersion(f"{self._schema.name} v{version} cannot carry {field}")

        source = EncoderSource(self._schema, version, in_slices=in_slices)
        text = source.text()
        return _function("encode", text, self._names | wire.packers(source.codes, source.arrays) | {"lost": lost})

    def _check(self, version: int) -> None:
        if version not in self._schema.versions:
            raise UnsupportedVersion(f"{self._schema.name} has no version {version}")


class _Codecs(dict[int, VersionCodec]):
    """The two functions of each version, generated at first use."""

    def __init__(self, sources: _Sources) -> None:
        super().__init__()
        self._sources = sources

    def __missing__(self, version: int) -> VersionCodec:
        self[version] = codec = VersionCodec(self._sources.decoder(version), self._sources.encoder(version))
        return codec


class _SlicedCodecs(dict[int, SlicedCodec]):
    """The two generators of each version, generated at first use."""

    def __init__(self, sources: _Sources) -> None:
        super().__init__()
        self._sources = sources

    def __missing__(self, version: int) -> SlicedCodec:
        decode = self._sources.decoder(version, in_slices=True)
        self[version] = codec = SlicedCodec(decode, self._sources.encoder(version, in_slices=True))
        return codec


def _function(name: str, source: str, names: dict[str, object]) -> Any:
    """The function that `source` defines, with `names` as its globals."""
    exec(source, names)  # noqa: S102  # the source is ours, from schemas that ship with the package
    return names[name]
