"""The values of `message.format.version`: Apache Kafka releases and the message format that each stored.

    0.8.0 … 0.9.0                0    a message at a time, without timestamps
    0.10.0-IV0 … 0.10.2-IV0      1    timestamps (KIP-32)
    0.11.0-IV0 …                 2    record batches (KIP-98)

A patch level (0.10.0.1) or a development version (0.10.0-IV1) is allowed and has no effect. Apache Kafka ignores the
setting from 3.0 on and stores format 2. headrace still applies it, so that topics of old clients need no conversion at
each fetch. Source: Kafka's `ApiVersion`, `MetadataVersion`.
"""

import re

NEWEST_MAGIC = 2
DEFAULT = "3.0-IV1"

_VERSION = re.compile(r"(0\.\d+\.\d+|[1-9]\.\d+)(?:\.\d+)*(-IV\d)?", re.ASCII)
_MAGIC_OF_OLD = {"0.8.0": 0, "0.8.1": 0, "0.8.2": 0, "0.9.0": 0, "0.10.0": 1, "0.10.1": 1, "0.10.2": 1, "0.11.0": 2}
_LAST_MINOR = {1: 1, 2: 8, 3: 9, 4: 9}


def magic_of(version: str) -> int:
    """The magic of the batches that a topic with this `message.format.version` stores. ValueError if it is no
    version."""
    found = _VERSION.fullmatch(version)
    if found is not None:
        release, step = found.groups()
        if release in _MAGIC_OF_OLD:
            magic = _MAGIC_OF_OLD[release]
            if step is None or magic > 0:
                return magic
        else:
            major, minor = map(int, release.split("."))
            if minor <= _LAST_MINOR.get(major, -1):
                return NEWEST_MAGIC
    raise ValueError(
        "is not a version of Apache Kafka: use a version such as 0.8.2, 0.9.0, 0.10.2, 0.11.0, 2.8 or 3.0-IV1"
    )
