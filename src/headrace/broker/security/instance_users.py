"""Users of instances who authenticate at a listener of the broker: `acme.alice` is alice of instance acme.

    the shared listener     headrace.instances.listener without a domain: the connection goes on as one of the instance.
                            A name with a dot that is of no instance is refused: it may be of one that was deleted,
                            whose users must not become the operator's
    any other listener      refused, as long as there is such an instance: what its users see there would be everything

Users whose names do not begin as those of instances do are the operator's.

A refusal is that of a wrong password, after the same steps: `acme.alice` may be known to anybody, and no listener but
that of her instance may tell whether she exists, or whether a password is hers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.security.sasl.exchange import Malformed

if TYPE_CHECKING:
    from headrace.broker.instances.visitors import Visitors
    from headrace.metadata.stored_instances import StoredInstances
    from headrace.network.connection import Connection

BARRED = "the user is of an instance, or of one that was deleted, and may not enter it through this listener"
"""The reason, for the log."""


class Hosting(Protocol):
    """The instances that this broker serves."""

    @property
    def listener_of_users(self) -> str:
        """The listener through which users of instances come; empty if there is none."""

    def adopt(self, connection: Connection, name: str) -> Visitors | None:
        """Makes a connection one of an instance; None if it may not be."""

    def may_adopt(self, connection: Connection, name: str, *, is_counted: bool) -> bool:
        """Whether `adopt` would do so. May be called on any thread, unless a refusal is to be counted."""


class InstanceUsers:
    """Finds the instances of users."""

    def __init__(self, instances: StoredInstances, hosting: Hosting) -> None:
        self._instances, self._hosting = instances, hosting

    def is_barred(self, connection: Connection, name: str) -> bool:
        """See `gate.GateHost`."""
        return self._is_barred(connection, name, is_counted=False)

    def is_counted_as_barred(self, connection: Connection, name: str) -> bool:
        """Counts the refusal of a user that is barred; returns whether it is."""
        return self._is_barred(connection, name, is_counted=True)

    def visitors_of(self, connection: Connection, name: str) -> Visitors | None:
        """See `gate.GateHost`."""
        instance, is_shared = self._chosen(connection, name)
        if is_shared:
            visitors = self._hosting.adopt(connection, instance)
            if visitors is None:
                raise Malformed(BARRED)
            return visitors
        if instance and self._instances.get(instance) is not None:
            raise Malformed(BARRED)
        return None

    def _is_barred(self, connection: Connection, name: str, *, is_counted: bool) -> bool:
        instance, is_shared = self._chosen(connection, name)
        if is_shared:
            return not self._hosting.may_adopt(connection, instance, is_counted=is_counted)
        return bool(instance) and self._instances.get(instance) is not None

    def _chosen(self, connection: Connection, name: str) -> tuple[str, bool]:
        """The instance that a user's name begins with, whether it exists or not, and whether the listener is the one
        through which its users come; "" for another name."""
        if "." not in name:
            return "", False
        from headrace.instances.definition import NAME  # few clusters have such users
        from headrace.instances.names import instance_of

        instance = instance_of(name)
        if not NAME.fullmatch(instance):
            return "", False
        shared = self._hosting.listener_of_users
        # The latter when it authenticates again.
        return instance, bool(shared) and connection.listener in (shared, instance)
