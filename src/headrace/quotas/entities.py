"""The entities that have quotas: users, client ids and their defaults, in Apache Kafka's order of precedence. Pure.

      node of the metadata store                who shares one bucket
    1 /config/users/U/clients/C                 user and client
    2 /config/users/U/clients/<default>         user and client
    3 /config/users/U                           user
    4 /config/users/<default>/clients/C         user and client
    5 /config/users/<default>/clients/<default> user and client
    6 /config/users/<default>                   user
    7 /config/clients/C                         client
    8 /config/clients/<default>                 client

The first entity that sets a quota of the kind applies, and none of the others. All connections of its user, client or
user and client share one bucket. A client without an id has the quotas of its user only.
Source: Kafka's `ClientQuotaManager`.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple


class Default(Enum):
    """The entity for everyone who has no quota of their own. No name equals it."""

    DEFAULT = "<default>"


DEFAULT = Default.DEFAULT

Name = str | Default | None
"""A user's or client's name, the default, or None: the entity has no such part."""


class Entity(NamedTuple):
    """The entity that a quota is set for."""

    user: Name = None
    client: Name = None


class Sharers(NamedTuple):
    """The clients that share one bucket: an empty part means all."""

    user: str = ""
    client: str = ""


def candidates(user: str, client: str) -> Iterator[tuple[Entity, Sharers]]:
    """The entities whose quota may apply to a request, the one that takes precedence first."""
    of_both, of_user = Sharers(user, client), Sharers(user)
    if client:
        yield Entity(user, client), of_both
        yield Entity(user, DEFAULT), of_both
    yield Entity(user), of_user
    if client:
        yield Entity(DEFAULT, client), of_both
        yield Entity(DEFAULT, DEFAULT), of_both
    yield Entity(DEFAULT), of_user
    if client:
        of_client = Sharers("", client)
        yield Entity(None, client), of_client
        yield Entity(None, DEFAULT), of_client
