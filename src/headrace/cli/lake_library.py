"""What the commands of lake tables share: the library that writes tables, and the definition of a topic's table."""

from importlib import import_module
from typing import Any

from headrace.client.core.cluster import Cluster
from headrace.config.lake_definition import LakeDefinition
from headrace.errors import ErrorCode, KafkaError
from headrace.lake.definitions import Definitions


class LibraryMissing(OSError):
    """Tables cannot be opened on this machine."""


def library(name: str) -> Any:
    """A module of `headrace.lake` that needs pyarrow and deltalake. Raises LibraryMissing."""
    try:
        return import_module(name)
    except ImportError as missing:
        raise LibraryMissing(
            f"lake tables need {missing.name}; install it with: pip install 'headrace[lake]'"
        ) from None


def defined(cluster: Cluster, topic: str) -> LakeDefinition:
    """The table of a topic. Raises KafkaError if it has none."""
    found = Definitions(cluster).of(topic)
    if found is None:
        message = f"topic {topic} has no lake table: add one with headrace lake add"
        raise KafkaError(message, ErrorCode.RESOURCE_NOT_FOUND)
    return found
