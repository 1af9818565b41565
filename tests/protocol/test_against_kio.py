"""Byte equality with kio, an independent codec whose classes are generated from Kafka's descriptions.

kio has one frozen dataclass per (struct, version); our message is turned into it field by field, in order. kio lacks
the ZooKeeper-era requests, the versions that Kafka 4 dropped, and the records of groups; test_against_java.py has all.
"""

import dataclasses
import datetime
import importlib
import io
from functools import cache
from typing import Any, get_args
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_writer

from headrace.protocol.codec.message import Struct
from headrace.protocol.codec.schema import Field
from tests.protocol.random_messages import INITIALS, SCHEMAS, VERSIONS, named, random_message, seeds

PATHS = {
    (path.partition(":")[2], version): path
    for versions in schema_name_map.values()
    for version, kinds in versions.items()
    for path in kinds.values()
}
COMPARED = [known for known in VERSIONS if known in PATHS]
UNKNOWN_TO_KIO = len(VERSIONS) - len(COMPARED)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@cache
def _kio_class(name: str, version: int) -> type[Any]:
    module, _, cls = PATHS[name, version].partition(":")
    found: type[Any] = getattr(importlib.import_module(module), cls)
    return found


def _dataclass_in(annotation: object) -> type[Any]:
    """The dataclass in `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return annotation
    found = [_dataclass_in(inner) for inner in get_args(annotation) if inner not in (type(None), ...)]
    return found[0]


def _scalar(value: Any, kafka_type: str) -> object:
    """Our value as kio holds it."""
    match kafka_type:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return _EPOCH + datetime.timedelta(milliseconds=value)
        case "uuid":
            return UUID(bytes=value) if any(value) else None
    return value


def _twin(cls: type[Any], ours: Struct, name: str, struct: str, version: int) -> object:
    """Our struct as kio's."""
    fields = [field for field in SCHEMAS[name].structs[struct] if version in field.versions]
    values = {}
    for theirs, field in zip(dataclasses.fields(cls), fields, strict=True):

        def one(value: Any, theirs: dataclasses.Field[Any] = theirs, field: Field = field) -> object:
            if value is None:
                return None
            if field.is_struct:
                return _twin(_dataclass_in(theirs.type), value, name, field.type, version)
            return _scalar(value, theirs.metadata["kafka_type"])

        value = getattr(ours, field.name)
        values[theirs.name] = tuple(map(one, value)) if field.is_array and value is not None else one(value)
    return cls(**values)


@pytest.mark.slow
@pytest.mark.parametrize("initial", INITIALS)
def test_bytes_are_kios(initial: str) -> None:
    for name, seed in seeds("kio", 2, {name for name, _ in COMPARED}, initial):
        for version in (version for known, version in COMPARED if known == name):
            with named(name, version, seed):
                ours = random_message(name, version, seed, modest=True)
                cls = _kio_class(name, version)
                theirs = io.BytesIO()
                entity_writer(cls)(theirs, _twin(cls, ours, name, "", version))
                assert ours.encode(version) == theirs.getvalue()


def test_every_version_that_kio_knows_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    known = [path for path in PATHS if not path[0].endswith("Header")]
    with capsys.disabled():
        print(f"\nkio: {len(COMPARED)} of {len(VERSIONS)} message versions compared; kio has no other {UNKNOWN_TO_KIO}")
    assert set(known) <= set(VERSIONS)
