"""Text, bytes and numbers as bytes: the formats of Kafka's own serializers. Pure.

    string   UTF-8, or another encoding          bytes    as they are
    short    int16    integer   int32    long    int64    big-endian, two's complement
    float    IEEE 754, 32 bits           double  IEEE 754, 64 bits, big-endian
    uuid     its 36 characters in UTF-8          boolean  one byte, 0 or 1

Source: `org.apache.kafka.common.serialization`. A number that is not of its length, and text of another type, is a
TypeError or ValueError.
"""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID


class StringSerializer:
    """Text in an encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)  # LookupError for an unknown one
        self._encoding = encoding

    def __call__(self, value: str) -> bytes:
        """The text's bytes."""
        if not isinstance(value, str):
            raise TypeError(f"{value!r} is a {type(value).__name__}, and not text")
        return value.encode(self._encoding)


class StringDeserializer:
    """Text of an encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)
        self._encoding = encoding

    def __call__(self, data: bytes) -> str:
        """The text; UnicodeDecodeError for bytes that are none."""
        return data.decode(self._encoding)


class NumberSerializer:
    """Numbers of a fixed length; `form` is a form of `struct`."""

    def __init__(self, form: str) -> None:
        self._packed = struct.Struct(form)

    def __call__(self, value: float) -> bytes:
        """The number's bytes."""
        try:
            return self._packed.pack(value)
        except struct.error as cause:
            raise ValueError(f"{value!r}: {cause}") from None


class NumberDeserializer:
    """Numbers of a fixed length; `form` is a form of `struct`."""

    def __init__(self, form: str) -> None:
        self._packed = struct.Struct(form)

    def __call__(self, data: bytes) -> Any:
        """The number."""
        if len(data) != self._packed.size:
            raise ValueError(f"{len(data)} bytes, where {self._packed.size} are expected")
        return self._packed.unpack(data)[0]


def uuid_bytes(value: UUID) -> bytes:
    """An UUID as text."""
    if not isinstance(value, UUID):
        raise TypeError(f"{value!r} is a {type(value).__name__}, and not a UUID")
    return str(value).encode()


def uuid_of(data: bytes) -> UUID:
    """An UUID from its text."""
    return UUID(data.decode())


def as_is(value: bytes) -> bytes:
    """The bytes."""
    return value


NUMBERS = {"short": ">h", "integer": ">i", "long": ">q", "float": ">f", "double": ">d", "boolean": ">?"}
