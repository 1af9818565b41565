"""Kafka's 16-byte ids and their text: URL-safe base64 without padding, 22 characters, never starting with `-`.

Source: Kafka's `Uuid`.
"""

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable

_RESERVED = (bytes(16), bytes(15) + b"\x01")  # the zero id, and that of KRaft's metadata topic


def random_uuid(random_bytes: Callable[[int], bytes] = os.urandom) -> bytes:
    """A version 4 UUID whose text does not start with `-`, which a command line would take for an option."""
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        made = bytes(raw)
        if made not in _RESERVED and not to_text(made).startswith("-"):
            return made


def to_text(uuid: bytes) -> str:
    """22 characters."""
    return urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def from_text(text: str) -> bytes:
    """16 bytes. Raises ValueError unless `text` is the text of an id."""
    uuid = urlsafe_b64decode(text + "==") if len(text) == 22 else b""
    if len(uuid) != 16 or to_text(uuid) != text:
        raise ValueError(f"{text!r} is not a 22-character id")
    return uuid
