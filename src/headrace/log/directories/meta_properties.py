"""`meta.properties`: the cluster and the broker that a data directory belongs to.

    version 0   broker.id=1    cluster.id=MkU3OEVBNTcwNTJENDM2Qk            Apache Kafka with ZooKeeper; and we
    version 1   node.id=1      cluster.id=…    directory.id=0sjTqG…         Apache Kafka with KRaft

A Java properties file: `key=value`, `#` begins a comment, a backslash takes the next character as it is. Both versions
are read, ours is version 0. Source: Kafka's MetaProperties, PropertiesUtils.
"""

from pathlib import Path
from typing import NamedTuple

from headrace.log.files import Files

FILE_NAME = "meta.properties"
VERSION = 0


class CorruptMetaProperties(Exception):
    """A meta.properties file lacks a line, or has an invalid one."""


class MetaProperties(NamedTuple):
    """The content of a data directory's `meta.properties`."""

    broker_id: int
    cluster_id: str
    directory_id: str | None = None
    version: int = VERSION


def parse(text: str) -> MetaProperties:
    """Parse a file's content of either version. Raises CorruptMetaProperties."""
    fields = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith(("#", "!")):
            fields[key.strip()] = _unescape(value.strip())
    try:
        version = int(fields["version"])
        broker_id = int(fields["broker.id" if version == 0 else "node.id"])
        return MetaProperties(broker_id, fields["cluster.id"], fields.get("directory.id"), version)
    except KeyError as error:
        raise CorruptMetaProperties(f"{error.args[0]} is missing") from error
    except ValueError as error:
        raise CorruptMetaProperties(str(error)) from error


def format_text(properties: MetaProperties) -> str:
    """The file's content, in the version of `properties`."""
    id_key = "broker.id" if properties.version == 0 else "node.id"
    lines = [f"version={properties.version}", f"{id_key}={properties.broker_id}", f"cluster.id={properties.cluster_id}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={properties.directory_id}")
    return "#\n" + "".join(f"{line}\n" for line in lines)


def read(files: Files, directory: Path) -> MetaProperties | None:
    """Read a data directory's properties; None for a new directory. Raises CorruptMetaProperties, OSError."""
    path = directory / FILE_NAME
    if not files.exists(path):
        return None
    try:
        return parse(files.read(path).decode())
    except (CorruptMetaProperties, UnicodeDecodeError) as error:
        raise CorruptMetaProperties(f"{path}: {error}") from error


def write(files: Files, directory: Path, properties: MetaProperties) -> None:
    """Write a data directory's properties, synced. Raises OSError."""
    files.replace(directory / FILE_NAME, format_text(properties).encode())


def _unescape(value: str) -> str:
    return value.replace("\\\\", "\0").replace("\\", "").replace("\0", "\\")
