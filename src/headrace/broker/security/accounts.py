"""The account behind a name in a SCRAM exchange: a user in the metadata store, or the owner of a delegation token."""

from headrace.broker.security.delegation_tokens import DelegationTokens
from headrace.metadata.scram_users import ScramUsers
from headrace.security.sasl.scram import ScramCredential
from headrace.security.sasl.scram_server import Account, decoys


class ScramAccounts:
    """See `mechanisms.Accounts`."""

    def __init__(self, users: ScramUsers, tokens: DelegationTokens | None, secret: bytes) -> None:
        """`secret`: the cluster's, for the credentials of unknown names."""
        self._users, self._tokens = users, tokens
        self._decoy = decoys(secret, users.users_by_iterations)

    def account(self, mechanism: str, name: str, is_token: bool, /) -> Account | None:
        """See `mechanisms.Accounts`."""
        if is_token:
            return None if self._tokens is None else self._tokens.account(mechanism, name)
        credential = self._users.credential(mechanism, name)
        return None if credential is None else Account(credential, name)

    def decoy(self, mechanism: str, name: str, /) -> ScramCredential:
        """See `mechanisms.Accounts`."""
        return self._decoy(mechanism, name)
