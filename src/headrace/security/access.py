"""Operations on resources, with Apache Kafka's codes, and the error that refuses each.

    resource            named by                        refused with
    TOPIC               the topic's name                TOPIC_AUTHORIZATION_FAILED
    GROUP               the group's id                  GROUP_AUTHORIZATION_FAILED
    CLUSTER             `kafka-cluster`                 CLUSTER_AUTHORIZATION_FAILED
    TRANSACTIONAL_ID    the transactional id            TRANSACTIONAL_ID_AUTHORIZATION_FAILED

Source: Kafka's AclOperation, ResourceType, Resource. Left out: delegation tokens and users.
"""

from enum import IntEnum
from typing import NamedTuple, Protocol

from headrace.errors import ErrorCode

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a connection that has not authenticated."""

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class Operation(IntEnum):
    """What is done to a resource."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """What an operation is done to."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


_REFUSED_WITH = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class RequestOrigin(NamedTuple):
    """The origin of a request."""

    principal: str
    host: str
    listener: str
    client_id: str | None


class Decisions:
    """What was decided for one connection, under one generation of the rules."""

    __slots__ = ("generation", "made", "origin")

    def __init__(self, generation: int, origin: RequestOrigin) -> None:
        self.generation, self.origin = generation, origin
        self.made: dict[tuple[Operation, ResourceType, str], bool] = {}


class Refusal(NamedTuple):
    """Why a request is not admitted."""

    code: ErrorCode
    message: str


class Rules(Protocol):
    """Decides about single operations. Asked again only after the admission's generation has moved."""

    def permits(self, origin: RequestOrigin, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Whether `origin` may do `operation` to the resource of that type and name."""


def refusal(origin: RequestOrigin, operation: Operation, resource: ResourceType, name: str) -> Refusal:
    """The refusal of an operation."""
    return Refusal(
        _REFUSED_WITH[resource],
        f"{origin.principal} may not {operation.name} {resource.name} {name} from {origin.host}",
    )
