"""Administration of users: their SCRAM credentials, over the wire.

A password does not leave this process: the request has its salted form, from which nobody can log in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import error_for
from headrace.errors import InvalidRequest
from headrace.protocol import messages as m
from headrace.security.sasl import scram

MECHANISMS: Sequence[str] = tuple(scram.HASHES)
_NAMES = {number: name for name, number in scram.MECHANISM_NUMBERS.items()}


class User(NamedTuple):
    """A user and the iterations of its credentials, by mechanism."""

    name: str
    iterations: Mapping[str, int]


class UserAdmin:
    """Calls about users on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list_users(self) -> list[User]:
        """Every user that has credentials."""
        return self._describe(None)

    def describe_user(self, name: str) -> User:
        """One user. Raises `KafkaError` (RESOURCE_NOT_FOUND)."""
        return self._describe([name])[0]

    def set_password(
        self, name: str, password: str, mechanisms: Sequence[str] = MECHANISMS, iterations: int = scram.ITERATIONS_MIN
    ) -> None:
        """Sets the credentials of a user. The broker may refuse the number of iterations. Raises `KafkaError`."""
        if not password:
            raise InvalidRequest("the password is empty")
        upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
        for mechanism in mechanisms:  # KRaft takes one credential of a user in a request
            salt = scram.new_salt(os.urandom(scram.SALT_BYTES))
            salted = scram.salted_password(mechanism, password, salt, iterations)
            number = scram.MECHANISM_NUMBERS[mechanism]
            one = upsertion(name=name, mechanism=number, iterations=iterations, salt=salt, salted_password=salted)
            self._alter(m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[one]))

    def remove(self, name: str, mechanisms: Sequence[str] = ()) -> None:
        """Removes credentials of a user; without mechanisms, all of them. Raises `KafkaError`."""
        wanted = mechanisms or list(self.describe_user(name).iterations)
        deletion = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion
        for each in wanted:
            one = deletion(name=name, mechanism=scram.MECHANISM_NUMBERS[each])
            self._alter(m.AlterUserScramCredentialsRequest(deletions=[one], upsertions=[]))

    def _alter(self, request: m.AlterUserScramCredentialsRequest) -> None:
        deadline = self._cluster.deadline()

        def attempt() -> None:
            answer = self._cluster.call_controller(request, m.AlterUserScramCredentialsResponse, deadline)
            for result in answer.results:
                if result.error_code:
                    raise error_for(result.error_code, result.error_message or f"user {result.user}")

        self._cluster.retry(attempt, deadline)

    def _describe(self, names: Sequence[str] | None) -> list[User]:
        part = m.DescribeUserScramCredentialsRequest.UserName
        request = m.DescribeUserScramCredentialsRequest(
            users=None if names is None else [part(name=name) for name in names]
        )
        deadline = self._cluster.deadline()

        def attempt() -> list[User]:
            answer = self._cluster.call_any(request, m.DescribeUserScramCredentialsResponse, deadline)
            if answer.error_code:
                raise error_for(answer.error_code, answer.error_message or "users")
            for result in answer.results:
                if result.error_code:
                    raise error_for(result.error_code, result.error_message or f"user {result.user}")
            return [
                User(each.user, {_NAMES.get(info.mechanism, "?"): info.iterations for info in each.credential_infos})
                for each in answer.results
            ]

        return sorted(self._cluster.retry(attempt, deadline))
