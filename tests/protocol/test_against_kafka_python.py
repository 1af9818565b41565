"""Byte equality with kafka-python 3, whose codec is its own and reads Apache Kafka's JSON descriptions at run time.

Our message is turned into theirs field by field, in order. kafka-python has the client's APIs up to Kafka 4's versions
but not the brokers' own; how many versions it lacks, and whom those are compared with, is printed.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import kafka.protocol
import pytest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.schemas.fields.codecs import BitField, EncodeBufferPool

from headrace.protocol.codec.message import Struct
from headrace.protocol.codec.schema import Field
from tests.protocol import test_against_kio
from tests.protocol.random_messages import INITIALS, SCHEMAS, VERSIONS, named, random_message, seeds


def _messages() -> Iterator[type[Any]]:
    """Every request and response class of kafka-python."""
    for _, name, _ in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" in name or name.endswith("generate_stubs"):  # its codec of version 2; a script
            continue
        for found in vars(importlib.import_module(name)).values():
            if isinstance(found, type) and issubclass(found, ApiMessage) and found is not ApiMessage:
                yield found


THEIRS = {cls.name: cls for cls in _messages()}
COMPARED = [known for known in VERSIONS if known[0] in THEIRS and known[1] <= THEIRS[known[0]].max_version]


def _scalar(value: Any, theirs: Any, version: int) -> object:
    """Our value as kafka-python holds it."""
    if theirs.type_str == "uuid" and isinstance(value, bytes):
        return None if theirs.tagged_field_q(version) and not any(value) else UUID(bytes=value)
    if theirs.type_str == "bitfield":
        return BitField.from_32_bit_field(value)
    return value


def _twin(their_struct: Any, ours: Struct, name: str, struct: str, version: int) -> SimpleNamespace:
    """Our struct under their names; any object with the right attributes is theirs."""
    fields = [field for field in SCHEMAS[name].structs[struct] if version in field.versions]
    values = {}
    for theirs, field in zip(
        [each for each in their_struct._fields if each.for_version_q(version)], fields, strict=True
    ):

        def one(value: Any, theirs: Any = theirs, field: Field = field) -> object:
            if value is None or not field.is_struct:
                return _scalar(value, theirs, version)
            return _twin(theirs, value, name, field.type, version)

        value = getattr(ours, field.name)
        if isinstance(value, Struct) and theirs.tagged_field_q(version) and value == type(value)():
            values[theirs.name] = (
                theirs.default
            )  # a struct of nothing but defaults: Java and we leave it out, they do not
            continue
        values[theirs.name] = [one(each) for each in value] if field.is_array and value is not None else one(value)
    tagged = {
        each.name for each in their_struct._fields if each.for_version_q(version) and each.tagged_field_q(version)
    }
    return SimpleNamespace(**values, tags=tagged, unknown_tags=None, version=version)


def _their_bytes(cls: type[Any], ours: Struct, version: int) -> bytes:
    flexible = cls.flexible_version_q(version)
    encode = cls._struct.compiled_encode_into(version, compact=flexible, tagged=flexible)
    with EncodeBufferPool.acquire() as out:
        encode(_twin(cls._struct, ours, cls.name, "", version), out)
        return bytes(out.result())


@pytest.mark.parametrize("initial", INITIALS)
def test_bytes_are_kafka_pythons(initial: str) -> None:
    for name, seed in seeds("kafka-python", 2, {name for name, _ in COMPARED}, initial):
        for version in (version for known, version in COMPARED if known == name):
            with named(name, version, seed):
                ours = random_message(name, version, seed, modest=True)
                assert ours.encode(version) == _their_bytes(THEIRS[name], ours, version)


def test_every_message_of_kafka_python_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    others = set(VERSIONS) - set(COMPARED)
    with_kio = others & set(test_against_kio.COMPARED)
    with capsys.disabled():
        print(
            f"\nkafka-python: {len(COMPARED)} of {len(VERSIONS)} message versions compared; it has no other "
            f"{len(others)}, of which {len(with_kio)} are compared with kio's and all with Java's"
        )
    assert set(THEIRS) <= set(SCHEMAS)
    assert [name for name, cls in THEIRS.items() if cls.max_version > SCHEMAS[name].versions[-1]] == []
