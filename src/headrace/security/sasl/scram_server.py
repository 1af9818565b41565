"""The server's side of SCRAM.

    client first ─▶ server first ─▶ client final ─▶ server final, or the failure

An unknown user cannot be told from a wrong password. The server goes on with a decoy: the same messages, the same
HMACs, the same text at the end. The salt of a decoy stays the same for the same name, as a stored one does. Apache
Kafka refuses an unknown user at the first message.
"""

import hmac
from collections.abc import Callable, Mapping
from math import log
from typing import NamedTuple

from headrace.security.sasl import scram
from headrace.security.sasl.exchange import Authenticated, Blocking, Challenge, ExchangeRefused, Malformed
from headrace.security.sasl.plain import OTHER_AUTHZID
from headrace.security.sasl.scram import ClientFirst, ScramCredential


class Account(NamedTuple):
    """The account behind a name."""

    credential: ScramCredential | Callable[[], ScramCredential]
    """Or what derives it, which takes milliseconds and may run on any thread."""
    name: str
    """The user, who for a token is its owner."""
    expires_at_ms: int | None = None


Lookup = Callable[[str, bool], Account | None]
"""The account of a name, or of a token's id if the second argument is true; None for an unknown one."""


class ScramServer:
    """The server's side of one exchange."""

    has_large_messages = False
    reason = ""

    def __init__(self, mechanism: str, lookup: Lookup, decoy: Callable[[str], ScramCredential], nonce: str) -> None:
        """`decoy`: makes a credential for an unknown name. `nonce`: the server's part of the nonce."""
        self.mechanism, self.claimed = mechanism, ""
        self._lookup, self._decoy, self._nonce = lookup, decoy, nonce
        self._first: ClientFirst | None = None
        self._challenge = ""
        self._account: Account | None = None
        self._credential: ScramCredential

    def respond(self, message: bytes) -> Challenge | Authenticated | Blocking:
        """See `ServerExchange`."""
        if self._first is None:
            return self._begin(scram.read_client_first(message))
        return self._end(self._first, message)

    def _begin(self, first: ClientFirst) -> Challenge | Blocking:
        self._first, self.claimed = first, first.name
        account, decoy = self._lookup(first.name, first.is_token), self._decoy(first.name)
        if first.authzid and first.authzid != first.name:
            raise ExchangeRefused(OTHER_AUTHZID)
        credential = decoy if account is None else account.credential
        if isinstance(credential, ScramCredential) and credential.iterations < scram.ITERATIONS_MIN:
            account, credential = None, decoy
        self._account = account
        self._nonce = first.nonce + self._nonce
        if isinstance(credential, ScramCredential):
            return self._challenged(credential)
        derive = credential
        return Blocking(lambda: self._challenged(derive()))

    def _challenged(self, credential: ScramCredential) -> Challenge:
        self._credential = credential
        self._challenge = scram.write_server_first(self._nonce, credential.salt, credential.iterations)
        return Challenge(self._challenge.encode())

    def _end(self, first: ClientFirst, message: bytes) -> Authenticated:
        final = scram.read_client_final(message)
        # As Apache Kafka 3.9, takes a nonce that ends with the expected one: librdkafka before 2.6.1 sends the client's
        # part twice. Apache Kafka 4.3 refuses that. The whole nonce is in the signed message, so nothing is lost.
        if not hmac.compare_digest(final.nonce[-len(self._nonce) :].encode(), self._nonce.encode()):
            raise Malformed("Invalid client nonce in the final client message.")
        if not hmac.compare_digest(final.channel, first.header.encode()):
            raise Malformed("the channel binding changed between the messages")
        auth_message = f"{first.bare},{self._challenge},{final.without_proof}"
        expected = scram.signature(self.mechanism, self._credential.stored_key, auth_message)
        signed = scram.signature(self.mechanism, self._credential.server_key, auth_message)
        if len(final.proof) != len(expected):
            raise Malformed("Invalid client credentials")
        client_key = scram.xor(final.proof, expected)
        is_proven = hmac.compare_digest(scram.digest(self.mechanism, client_key), self._credential.stored_key)
        if self._account is None or not is_proven:
            raise Malformed("Invalid client credentials")
        return Authenticated(
            scram.write_server_final(signed), self._account.name, first.is_token, self._account.expires_at_ms
        )


def decoys(
    secret: bytes, users_by_iterations: Callable[[str], Mapping[int, int]]
) -> Callable[[str, str], ScramCredential]:
    """Makes credentials for names that nobody has, given mechanism and name; no proof matches one.

    `secret`: the same on every broker of a cluster, so that brokers answer alike. `users_by_iterations`: how many users
    of a mechanism have how many iterations. As many of the decoys have them in proportion: if all had the most usual
    ones, others would tell that a user exists.
    """

    def decoy(mechanism: str, name: str) -> ScramCredential:
        def derived(purpose: str) -> bytes:
            return hmac.digest(secret, f"{mechanism}\0{purpose}\0{name}".encode(), scram.HASHES[mechanism])

        def score(iterations: int, users: int) -> float:
            # Rendezvous hashing: a further user changes few of the decoys.
            drawn = int.from_bytes(derived(f"iterations {iterations}")[:6], "big")
            return -users / log((drawn + 1) / ((1 << 48) + 1))

        salt = scram.new_salt(derived("salt")[: scram.SALT_BYTES])
        counted = users_by_iterations(mechanism) or {scram.ITERATIONS_MIN: 1}
        iterations = next(iter(counted))
        if len(counted) > 1:
            iterations = max(counted, key=lambda each: score(each, counted[each]))
        return ScramCredential(salt, derived("stored key"), derived("server key"), iterations)

    return decoy
