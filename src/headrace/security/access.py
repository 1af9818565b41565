"""Operations on resources, with Apache Kafka's codes, and the error that refuses each.

    resource            named by                        refused with
    TOPIC               the topic's name                TOPIC_AUTHORIZATION_FAILED
    GROUP               the group's id                  GROUP_AUTHORIZATION_FAILED
    CLUSTER             `kafka-cluster`                 CLUSTER_AUTHORIZATION_FAILED
    TRANSACTIONAL_ID    the transactional id            TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    DELEGATION_TOKEN    the token's id                  DELEGATION_TOKEN_AUTHORIZATION_FAILED
    USER                the principal, `User:name`      DELEGATION_TOKEN_AUTHORIZATION_FAILED

Source: Kafka's AclOperation, ResourceType, Resource, AclEntry.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from headrace.errors import ErrorCode

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a connection that has not authenticated."""

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class Operation(IntEnum):
    """What is done to a resource. ANY is for filters only; a rule of ALL stands for every operation."""

    ANY = 1
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """What an operation is done to. ANY is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


REFUSED_WITH = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}

_OP = Operation
_SUPPORTED = {
    ResourceType.TOPIC: (
        _OP.READ, _OP.WRITE, _OP.CREATE, _OP.DELETE, _OP.ALTER, _OP.DESCRIBE, _OP.DESCRIBE_CONFIGS, _OP.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_OP.READ, _OP.DELETE, _OP.DESCRIBE, _OP.DESCRIBE_CONFIGS, _OP.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _OP.CREATE, _OP.ALTER, _OP.DESCRIBE, _OP.CLUSTER_ACTION, _OP.DESCRIBE_CONFIGS, _OP.ALTER_CONFIGS,
        _OP.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_OP.WRITE, _OP.DESCRIBE, _OP.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_OP.DESCRIBE,),
    ResourceType.USER: (_OP.CREATE_TOKENS, _OP.DESCRIBE_TOKENS),
}  # fmt: skip


def supported_operations(resource: ResourceType) -> tuple[Operation, ...]:
    """The operations that a resource of a type has, in the order of their codes. Raises `KeyError` for ANY."""
    return _SUPPORTED[resource]


class RequestOrigin(NamedTuple):
    """The origin of a request."""

    principal: str
    host: str
    listener: str
    client_id: str | None


class Decisions:
    """What was decided for one connection, under one generation of the rules."""

    __slots__ = ("client_id", "generation", "made", "origin", "plain", "principal")

    def __init__(self, generation: int, origin: RequestOrigin) -> None:
        self.generation, self.origin = generation, origin
        self.principal, self.client_id = origin.principal, origin.client_id
        self.made: dict[tuple[Operation, ResourceType, str], bool] = {}
        self.plain: set[str | bytes] = set()
        """Topics, by name or id, to which a plain produce is permitted with any client id, so that the next one needs
        no more than a look-up of its topic."""


class Refusal(NamedTuple):
    """Why a request is not admitted."""

    code: ErrorCode
    message: str


class Rules(Protocol):
    """Decides about single operations. Asked again only after the admission's generation has moved."""

    @property
    def heeds_client_ids(self) -> bool:
        """Whether decisions depend on client ids, which would have to be compared for each request."""

    def permits(self, origin: RequestOrigin, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Whether `origin` may do `operation` to the resource of that type and name."""

    def permitted(
        self, origin: RequestOrigin, operations: Sequence[Operation], resource: ResourceType, name: str
    ) -> Sequence[Operation]:
        """The `operations` that `origin` may do to the resource."""

    def permits_any(
        self, origin: RequestOrigin, operation: Operation, resource: ResourceType, *, prefix: str = ""
    ) -> bool:
        """Whether there may be a resource of that type to which `origin` may do `operation`: one whose name begins with
        `prefix`, which is empty or ends with the first dot of the name. Users have no such prefix."""


def refusal(origin: RequestOrigin, operation: Operation, resource: ResourceType, name: str) -> Refusal:
    """The refusal of an operation."""
    return Refusal(
        REFUSED_WITH[resource],
        f"{origin.principal} may not {operation.name} {resource.name} {name} from {origin.host}",
    )
