"""`partition.metadata`: the file with the topic id of a partition's directory.

    version: 0
    topic_id: 0sjTqGE0QfmGgaQnlg3lPg        16 bytes, URL-safe base64 without padding

A topic that is deleted and recreated has the same directory name and another id (KIP-516). The file is synced with the
log's first flush. If a crash before that leaves it empty or incomplete, it is written again when the controller sends
the topic.
Source: Kafka's PartitionMetadataFile, Uuid.
"""

import binascii
from pathlib import Path

from headrace.log.files import Files

FILE_NAME = "partition.metadata"
TOPIC_ID_BYTES = 16
_BEFORE_ID = b"version: 0\ntopic_id: "
_ID_CHARS = 22


class CorruptPartitionMetadata(Exception):
    """A partition metadata file has no readable topic id."""


def format_topic_id(topic_id: bytes) -> str:
    """A topic id of 16 bytes as Kafka prints it: 22 characters of URL-safe base64."""
    text = binascii.b2a_base64(topic_id, newline=False).decode().rstrip("=")
    return text.translate({ord("+"): "-", ord("/"): "_"})


def parse_topic_id(text: str) -> bytes:
    """The 16 bytes of a topic id in the format of `format_topic_id`. Raises ValueError."""
    topic_id = binascii.a2b_base64(text.translate({ord("-"): "+", ord("_"): "/"}) + "==")
    if len(topic_id) != TOPIC_ID_BYTES:
        raise ValueError(f"{text!r} is no topic id")
    return topic_id


def write_topic_id(files: Files, directory: Path, topic_id: bytes) -> Path:
    """Write the metadata file of a partition without a sync, and return its path. Raises OSError."""
    path = directory / FILE_NAME
    files.replace(path, f"version: 0\ntopic_id: {format_topic_id(topic_id)}\n".encode(), sync=False)
    return path


def read_topic_id(files: Files, directory: Path) -> bytes | None:
    """The topic id of a partition's directory; None without a metadata file, or when a crash cut the file short.

    Raises CorruptPartitionMetadata, OSError.
    """
    path = directory / FILE_NAME
    try:
        text = files.read(path)
    except FileNotFoundError:
        return None
    if _is_cut_short(text.rstrip(b"\0")):
        return None
    try:
        fields = dict(line.split(":", 1) for line in text.decode().splitlines())
        if int(fields["version"]) != 0:
            raise ValueError(f"version {fields['version']} is not 0")
        return parse_topic_id(fields["topic_id"].strip())
    except (KeyError, ValueError) as error:
        raise CorruptPartitionMetadata(f"{path}: {error}") from error


def _is_cut_short(text: bytes) -> bool:
    """Whether the text is an incomplete beginning of a metadata file, or empty."""
    topic_id = text[len(_BEFORE_ID) :]
    return _BEFORE_ID.startswith(text[: len(_BEFORE_ID)]) and len(topic_id) < _ID_CHARS and b"\n" not in topic_id
