"""Which options are secret, and how an option is shown where others can read it.

A value that only says where the secret is, such as `${env:PASSWORD}`, is shown as it is. Pure.
"""

import re
from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "[hidden]"
"""What Apache Kafka prints instead of a password."""

SECRET_PATTERN: Final = r"password|secret|jaas|passphrase|private|credential|access[._]?key|(?:^|\.)(?:key|token)$"
"""Finds the names of secret options, in any case. `ssl.keystore.key` is a private key; `key.serializer` is not."""

_SECRET: Final = re.compile(SECRET_PATTERN, re.IGNORECASE)
_PRIVATE_VALUE: Final = re.compile(r"PRIVATE KEY-----|LoginModule\s+(?:required|requisite|sufficient|optional)")
_LITERAL: Final = re.compile(
    r"""(?:password|secret|passphrase|token|user_\w+)\w*\s*=\s*["']?(?!["']?\$\{)[^\s;"']""", re.IGNORECASE
)
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")


def is_secret(name: str, value: str = "") -> bool:
    """Whether an option's value must not be shown, by its name or by what it looks like."""
    return _SECRET.search(name) is not None or _PRIVATE_VALUE.search(value) is not None


def is_reference(value: str) -> bool:
    """Whether a value is nothing but a reference to where the secret is."""
    return _REFERENCE.fullmatch(value.strip()) is not None


def holds_secret(name: str, value: str) -> bool:
    """Whether a value has a secret in it, and not only a reference to one: for warnings about who can read it."""
    if not is_secret(name, value) or not value.strip() or is_reference(value):
        return False
    return "LoginModule" not in value or _LITERAL.search(value) is not None


def shown(name: str, value: str) -> str:
    """An option's value for a message, a page or a terminal."""
    return HIDDEN if value and is_secret(name, value) and not is_reference(value) else value


def redacted(options: Mapping[str, str]) -> dict[str, str]:
    """Options with their secrets hidden."""
    return {name: shown(name, value) for name, value in options.items()}


class SecretOptions(dict[str, str]):
    """Options whose `repr` hides secrets. They travel to Spark's workers like any mapping."""

    def __repr__(self) -> str:
        return repr(redacted(self))

    __str__ = __repr__
