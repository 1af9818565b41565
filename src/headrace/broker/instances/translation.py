"""Makes the functions that translate requests and responses, from the kinds of their fields (`fields`).

    translate(names, message)    a generator: yields after every slice of a large message, returns the message

A request was decoded for this and is changed in place. A response may be shared by several clients, so each struct with
something to translate is copied; the other values are those of the original. A message without such a field has no
function. The functions are made from the schema at the first use of an API, as the codecs are, so that a request costs
no more than the fields that it has.

An element of a response whose topic, group, transactional id or user is another's is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import cache
from typing import Any

from headrace.broker.instances import consumer_protocol
from headrace.broker.instances.fields import SERVED, FieldKind, kind_of
from headrace.broker.instances.names import ENTITIES, InstanceNames
from headrace.protocol import messages
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec import schema
from headrace.protocol.codec.message import Message
from headrace.security.access import ResourceType

ELEMENTS_PER_SLICE = 1000
Translating = Generator[None, None, Any]
Translate = Callable[[InstanceNames, Any], Translating]

_CONSUMER = "consumer"
_GROUP_CONFIGS, _BROKER_CONFIGS = 32, 4
_NAMED_RESOURCES = (int(ResourceType.TOPIC), _GROUP_CONFIGS)
_PREFIXED = (FieldKind.TOPIC, FieldKind.GROUP, FieldKind.TRANSACTION, FieldKind.USER)
_UNCHANGED = (FieldKind.NEUTRAL, FieldKind.OF_SERVICE)
_ONLY_IN_RESPONSES = (FieldKind.TEXT, FieldKind.PATH, FieldKind.SIZE, FieldKind.LISTED_RESOURCE)


@cache
def of_request(api_key: ApiKey) -> Translate | None:
    """The function that qualifies the names in a request; None if it has none."""
    return _Source(api_key, "Request", SERVED[api_key].request).function()


@cache
def of_response(api_key: ApiKey) -> Translate | None:
    """The function that makes the copy of a response for the instance's clients; None if it has no names."""
    return _Source(api_key, "Response", SERVED[api_key].response).function()


def message_class(api_key: ApiKey, suffix: str) -> str:
    """`OFFSET_COMMIT`, `Request` -> `OffsetCommitRequest`."""
    return "".join(part.capitalize() for part in api_key.name.split("_")) + suffix


class _Source:
    """Writes one function."""

    def __init__(self, api_key: ApiKey, suffix: str, paths: Mapping[str, FieldKind]) -> None:
        self._schema: schema.MessageSchema = schema.load(message_class(api_key, suffix))
        self._paths, self._is_request = paths, suffix == "Request"
        self._lines: list[str] = []
        self._class: type[Message] = getattr(messages, self._schema.name)
        self._names: dict[str, Any] = {
            "new": object.__new__,
            "subscription": consumer_protocol.subscription,
            "assignment": consumer_protocol.assignment,
            "CONSUMER": _CONSUMER,
            "NAMED": _NAMED_RESOURCES,
            "BROKER": _BROKER_CONFIGS,
            "ENTITIES": ENTITIES,
        }
        for struct in self._schema.structs:
            self._names[f"c_{struct}"] = getattr(self._class, struct) if struct else self._class

    def function(self) -> Translate | None:
        if not self._concerns("", ""):
            return None
        self._lines = ["def translate(v, m0):", " p, ids = v.prefix, v.own_ids", f" left = {ELEMENTS_PER_SLICE}"]
        if self._is_request:
            self._request("", "", 0, 1)
            self._lines.append(" return m0")
        else:
            self._copy("", "", 0, 1)
            self._lines.append(" return n0")
        self._lines.append(" yield")  # a generator in any case
        exec(compile("\n".join(self._lines), f"<translation of {self._schema.name}>", "exec"), self._names)  # noqa: S102
        made: Translate = self._names["translate"]
        return made

    def _add(self, indent: int, *lines: str) -> None:
        self._lines += [" " * indent + each for each in lines]

    def _kind(self, path: str) -> FieldKind | None:
        kind = kind_of(self._paths, path)
        if kind in _UNCHANGED or (self._is_request and kind in _ONLY_IN_RESPONSES):
            return None
        return kind

    def _concerns(self, struct: str, path: str) -> bool:
        """Whether a struct has a field to translate."""
        return any(
            self._concerns(field.type, f"{path}{field.name}.")
            if field.is_struct
            else self._kind(path + field.name) is not None
            for field in self._schema.structs[struct]
        )

    # -- requests, in place

    def _request(self, struct: str, path: str, depth: int, indent: int) -> None:
        for field in self._schema.structs[struct]:
            here, of = path + field.name, f"m{depth}.{field.name}"
            if field.is_struct:
                if self._concerns(field.type, f"{here}."):
                    inner = f"m{depth + 1}"
                    if field.is_array:
                        self._add(indent, f"for {inner} in {of} or ():")
                        self._count(indent + 1)
                    else:
                        self._add(indent, f"{inner} = {of}", f"if {inner} is not None:")
                    self._request(field.type, f"{here}.", depth + 1, indent + 1)
                continue
            kind = self._kind(here)
            if kind is None:
                continue
            if field.is_array:
                self._add(indent, f"if {of}:", " xs = []", f" for x in {of}:")
                self._count(indent + 2)
                self._qualify(kind, depth, indent + 2)
                self._add(indent, "  xs.append(x)", f" {of} = xs")
            else:
                self._add(indent, f"x = {of}")
                self._add(indent, "if x is not None:" if kind is FieldKind.ANY_GROUP else "if x:")
                self._qualify(kind, depth, indent + 1)
                self._add(indent, f" {of} = x")

    def _qualify(self, kind: FieldKind, depth: int, indent: int) -> None:
        match kind:
            case FieldKind.ANY_GROUP:
                self._add(indent, "x = p + x")
            case _ if kind in _PREFIXED:
                self._add(indent, "if x: x = p + x")
            case FieldKind.TOPIC_ID:
                self._add(indent, "if x not in ids: x = v.masked(x)")
            case FieldKind.TOPIC_REGEX | FieldKind.TRANSACTION_REGEX:
                self._add(indent, "x = v.regex(x)")
            case FieldKind.RESOURCE:
                self._add(indent, f"if m{depth}.resource_type in NAMED: x = p + x")
            case FieldKind.ENTITY:
                self._add(indent, f"if m{depth}.entity_type in ENTITIES: x = p + x")
            case FieldKind.SUBSCRIPTION | FieldKind.ASSIGNMENT:
                read = kind.name.lower()
                self._add(indent, f"if m0.protocol_type == CONSUMER: x = yield from {read}(x, v.qualified)")

    # -- responses, copied

    def _copy(self, struct: str, path: str, depth: int, indent: int) -> None:
        """Makes `n<depth>` of `m<depth>`. Within a loop, `continue` leaves the element out."""
        self._add(indent, f"n{depth} = new(c_{struct})")
        for field in self._schema.structs[struct]:
            here, of, to = path + field.name, f"m{depth}.{field.name}", f"n{depth}.{field.name}"
            if field.is_struct and self._concerns(field.type, f"{here}."):
                self._copy_struct(field, here, depth, indent)
                continue
            kind = None if field.is_struct else self._kind(here)
            if kind is None:
                self._add(indent, f"{to} = {of}")
            elif field.is_array:
                self._add(indent, f"{to} = xs = []", f"for x in {of} or ():")
                self._count(indent + 1)
                self._localize(kind, depth, indent + 1, in_loop=True)
                self._add(indent + 1, "xs.append(x)")
            else:
                self._add(indent, f"x = {of}")
                self._add(indent, "if x:")
                self._localize(kind, depth, indent + 1, in_loop=depth > 0 and not self._is_alone(path))
                self._add(indent, f"{to} = x")

    def _copy_struct(self, field: schema.Field, here: str, depth: int, indent: int) -> None:
        of, to, inner = f"m{depth}.{field.name}", f"n{depth}.{field.name}", f"m{depth + 1}"
        if field.is_array:
            self._add(indent, f"{to} = l{depth} = None if {of} is None else []", f"for {inner} in {of} or ():")
            self._count(indent + 1)
            if kind_of(self._paths, f"{here}.entity.entity_name") is FieldKind.LISTED_ENTITY:
                self._add(indent + 1, f"if not all(v.has_entity(each) for each in {inner}.entity): continue")
            self._copy(field.type, f"{here}.", depth + 1, indent + 1)
            self._add(indent + 1, f"l{depth}.append(n{depth + 1})")
        else:
            self._add(indent, f"{inner} = {of}", f"if {inner} is None:", f" {to} = None", "else:")
            self._copy(field.type, f"{here}.", depth + 1, indent + 1)
            self._add(indent + 1, f"{to} = n{depth + 1}")

    def _is_alone(self, path: str) -> bool:
        """Whether a struct is no element of an array."""
        struct, is_array = "", False
        for name in path.rstrip(".").split("."):
            field = next(each for each in self._schema.structs[struct] if each.name == name)
            struct, is_array = field.type, field.is_array
        return not is_array

    def _localize(self, kind: FieldKind, depth: int, indent: int, *, in_loop: bool) -> None:
        other = "continue" if in_loop else "x = ''"
        match kind:
            case FieldKind.ANY_GROUP:
                raise AssertionError("a response names a group as GROUP")
            case _ if kind in _PREFIXED:
                self._add(indent, "if x.startswith(p): x = x[len(p):]", f"elif x: {other}")
            case FieldKind.TOPIC_ID:
                self._add(indent, "if x not in ids: x = v.masked(x)")
            case FieldKind.TEXT:
                self._add(indent, "x = v.text(x)")
            case FieldKind.TOPIC_REGEX | FieldKind.TRANSACTION_REGEX:
                self._add(indent, "x = v.local_regex(x)")
            case FieldKind.RESOURCE | FieldKind.LISTED_RESOURCE:
                self._add(indent, f"if m{depth}.resource_type in NAMED:")
                self._add(indent, " if x.startswith(p): x = x[len(p):]", f" elif x: {other}")
                if kind is FieldKind.LISTED_RESOURCE:
                    self._add(indent, f"elif m{depth}.resource_type != BROKER: continue")
            case FieldKind.ENTITY | FieldKind.LISTED_ENTITY:
                self._add(indent, f"if m{depth}.entity_type in ENTITIES and x.startswith(p): x = x[len(p):]")
            case FieldKind.PATH:
                self._add(indent, f"x = 'log-dir-' + str(len(l{depth - 1}))")
            case FieldKind.SIZE:
                self._add(indent, "x = -1")
            case FieldKind.SUBSCRIPTION | FieldKind.ASSIGNMENT:
                read = kind.name.lower()
                whose = "m1" if self._schema.name == "DescribeGroupsResponse" else "m0"
                self._add(indent, f"if {whose}.protocol_type == CONSUMER: x = yield from {read}(x, v.local)")

    def _count(self, indent: int) -> None:
        self._add(indent, "left -= 1", "if not left:", f" left = {ELEMENTS_PER_SLICE}", " yield")
