"""Values in JSON with a JSON Schema of a registry, by jsonschema. Schemas are never fetched from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from headrace.client.serializers.context import SerializationContext
from headrace.client.serializers.errors import missing_library
from headrace.client.serializers.json_text import json_reader
from headrace.client.serializers.json_values import JsonSerializer
from headrace.client.serializers.models import converter_of
from headrace.client.serializers.registry.avro import schema_of
from headrace.client.serializers.registry.client import SchemaRegistry
from headrace.client.serializers.registry.schemas import JSON, Schema, frame_of
from headrace.client.serializers.registry.serdes import OPTIONS, Parsed, RegistryOptions, SchemaRegistration


class JsonSchemaSerializer:
    """Dictionaries and models in JSON, checked by a schema."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | Schema | type | None = None,
        options: RegistryOptions = OPTIONS,
        *,
        validate: bool = True,
        json_encode: Callable[[Any], bytes | str] | None = None,
    ) -> None:
        """`schema` may be a class of pydantic or msgspec, or missing with `use_latest_version`.

        Raises InvalidConfig without jsonschema.
        """
        _jsonschema()
        self._registration = SchemaRegistration(registry, options)
        described = _described(schema) if isinstance(schema, type) else schema
        self._schema = None if described is None else schema_of(described, JSON)
        if self._schema is None and not options.use_latest_version:
            raise ValueError("a schema is needed: give one, or use_latest_version")
        self._name = None if self._schema is None else _title(json.loads(self._schema.text))
        self._encode = json_encode or JsonSerializer()
        self._validators = Parsed(lambda found: _validator(found, registry)) if validate else None
        self.may_wait: Callable[[str, str], bool] = self._registration.may_wait

    def __call__(self, value: Any, context: SerializationContext) -> bytes:
        """The value's bytes. Raises jsonschema's ValidationError for a value that does not fit."""
        registered = self._registration.registered(context, self._name, self._given)
        encoded = self._encode(value)
        payload = encoded.encode() if isinstance(encoded, str) else encoded
        if self._validators is not None:
            self._validators.of(registered.schema).validate(json.loads(payload))
        return self._registration.framed(registered, payload, context)

    def _given(self) -> Schema:
        assert self._schema is not None, "checked when it was made"
        return self._schema


class JsonSchemaDeserializer:
    """JSON with a schema's id as values, or as objects of a model, checked by the record's schema."""

    def __init__(self, registry: SchemaRegistry, model: Any = None, *, validate: bool = True) -> None:
        """`model` is a class of records, or a function of the value. Raises InvalidConfig without jsonschema."""
        _jsonschema()
        self._registry = registry
        self._read = json_reader()
        self._made = None if model is None else converter_of(model)
        self._validators = Parsed(lambda found: _validator(found, registry)) if validate else None

    def __call__(self, data: bytes, context: SerializationContext) -> Any:
        """The value. ValueError for a wrong frame or no JSON, ValidationError for what does not fit."""
        frame = frame_of(data, context, JSON)
        found = self._read(frame.payload)
        if self._validators is not None:
            self._validators.of(self._registry.schema(frame.schema)).validate(found)
        return found if self._made is None else self._made(found)


def _described(model: Any) -> Mapping[str, Any]:
    if hasattr(model, "model_json_schema"):
        described: Mapping[str, Any] = model.model_json_schema()
        return described
    try:
        import msgspec
    except ModuleNotFoundError:
        raise missing_library("msgspec or pydantic", "models", f"the schema of {model.__name__}") from None
    return msgspec.json.schema(model)


def _title(parsed: Any) -> str | None:
    return parsed.get("title") if isinstance(parsed, dict) else None


def _validator(schema: Schema, registry: SchemaRegistry) -> Any:
    """What checks values. It resolves references by the registry alone: a schema cannot name a URL to ask."""
    import jsonschema_specifications
    import referencing.jsonschema

    library = _jsonschema()
    known = jsonschema_specifications.REGISTRY
    pending = [schema]
    while pending:
        for reference in pending.pop().references:
            found = registry.version(reference.subject, reference.version).schema
            resource = referencing.jsonschema.DRAFT7
            contents = referencing.Resource.from_contents(json.loads(found.text), default_specification=resource)
            known = known.with_resource(reference.name, contents)
            pending.append(found)
    parsed = json.loads(schema.text)
    kind = library.validators.validator_for(parsed, default=library.Draft7Validator)
    return kind(parsed, registry=known)


def _jsonschema() -> Any:
    try:
        import jsonschema
    except ModuleNotFoundError:
        raise missing_library("jsonschema", "jsonschema", "JSON Schema") from None
    return jsonschema
