"""What the serializers of Avro, JSON Schema and Protobuf have in common: the schema's registration, and the frame."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.client.serializers.context import SerializationContext
from headrace.client.serializers.registry.client import SchemaRegistry
from headrace.client.serializers.registry.schemas import (
    STRATEGIES,
    Registered,
    Schema,
    SubjectNames,
    header_of,
    prefix_of,
)
from headrace.errors import InvalidConfig

T = TypeVar("T")

_PARSED_MAX = 1_000


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """How a serializer uses a registry, by Confluent's names in Python's style."""

    auto_register_schemas: bool = True
    """Register a schema that the registry does not know. False: that is an error."""
    use_latest_version: bool = False
    """Write by the subject's newest schema, whichever schema the serializer has."""
    normalize_schemas: bool = False
    subject_name_strategy: str | SubjectNames = "topic"
    """topic, record, topic_record, or a function of the context and the record's name."""
    schema_id_in: str = "prefix"
    """prefix, or header: then the payload has no prefix, and readers without a registry can read it."""

    def __post_init__(self) -> None:
        if self.use_latest_version and self.auto_register_schemas:
            raise InvalidConfig("use_latest_version needs auto_register_schemas=False: nothing would be registered")
        if isinstance(self.subject_name_strategy, str) and self.subject_name_strategy not in STRATEGIES:
            raise InvalidConfig(
                f"subject_name_strategy={self.subject_name_strategy!r}: expected one of {', '.join(STRATEGIES)}"
            )
        if self.schema_id_in not in ("prefix", "header"):
            raise InvalidConfig(f"schema_id_in={self.schema_id_in!r}: expected prefix or header")

    def subject(self, context: SerializationContext, record: str | None) -> str:
        """The subject of the schema of a record."""
        names = self.subject_name_strategy
        return (STRATEGIES[names] if isinstance(names, str) else names)(context, record)


OPTIONS = RegistryOptions()


class SchemaRegistration:
    """The schema of one serializer in a registry."""

    def __init__(self, registry: SchemaRegistry, options: RegistryOptions) -> None:
        self.registry: SchemaRegistry = registry
        self.options: RegistryOptions = options
        self._ready: set[tuple[str, str]] = set()

    def may_wait(self, topic: str, field: str) -> bool:
        """Whether the registry has to be asked for a topic's key or value."""
        return (topic, field) not in self._ready or self.options.use_latest_version

    def registered(self, context: SerializationContext, record: str | None, schema: Callable[[], Schema]) -> Registered:
        """The registered schema for a record. Raises RegistryError, RegistryUnavailable."""
        options, subject = self.options, self.options.subject(context, record)
        if options.use_latest_version:
            found = self.registry.latest(subject)
        elif options.auto_register_schemas:
            found = self.registry.register(subject, schema(), normalize=options.normalize_schemas)
        else:
            found = self.registry.lookup(subject, schema(), normalize=options.normalize_schemas)
        self._ready.add((context.topic, context.field))
        return found

    def framed(
        self,
        registered: Registered,
        payload: bytes,
        context: SerializationContext,
        indexes: list[int] | None = None,
    ) -> bytes:
        """The payload with its prefix, or as it is, beside a header."""
        if self.options.schema_id_in == "prefix":
            return prefix_of(registered, indexes) + payload
        context.headers.append(header_of(registered, context, indexes))
        return payload


class Parsed(Generic[T]):
    """Schemas in the form of a library, which takes long to make; the last thousand are kept."""

    def __init__(self, parse: Callable[[Any], T]) -> None:
        self._parse = parse
        self._found: dict[Hashable, T] = {}

    def of(self, schema: Hashable) -> T:
        """The schema as the library has it."""
        found = self._found.get(schema)
        if found is None:
            if len(self._found) >= _PARSED_MAX:
                self._found.clear()
            found = self._found[schema] = self._parse(schema)
        return found
