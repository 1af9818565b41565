"""The client's side of SCRAM.

The server proves that it knows the user's credential too, and a client that gets no valid proof fails. Keys derived
from the password are kept by their owner (`KeyCache`), so that a reconnect does not compute PBKDF2 again.
"""

import hmac
from base64 import b64encode

from headrace.security.sasl import scram
from headrace.security.sasl.exchange import ExchangeRefused, Malformed
from headrace.security.sasl.scram import ScramKeys

KeyCache = dict[tuple[bytes, int], ScramKeys]
"""The keys of one password, by salt and iterations."""

_KEYS_KEPT_MAX = 8


class ScramClient:
    """The client's side of one exchange."""

    def __init__(
        self,
        mechanism: str,
        name: str,
        password: str,
        nonce: str,
        *,
        is_token: bool = False,
        keys: KeyCache | None = None,
    ) -> None:
        """`is_token`: `name` is the id of a delegation token, and `password` its HMAC."""
        self.mechanism = mechanism
        self._password = password
        self._first = scram.write_client_first(name, nonce, is_token=is_token)
        self._keys = {} if keys is None else keys
        self._expected = b""
        self._begun = False
        self.is_complete = False

    def respond(self, message: bytes | None) -> bytes:
        """See `ClientExchange`. The response to the server's first message takes up to ten milliseconds."""
        try:
            if message is None:
                return (self._first.header + self._first.bare).encode()
            if not self._begun:
                return self._prove(message)
            self._check(message)
        except Malformed as error:
            raise ExchangeRefused(str(error)) from None
        return b""

    def _prove(self, message: bytes) -> bytes:
        first = scram.read_server_first(message)
        if not first.nonce.startswith(self._first.nonce) or first.nonce == self._first.nonce:
            raise ExchangeRefused("the server's nonce does not continue this client's")
        if not scram.ITERATIONS_MIN <= first.iterations <= scram.ITERATIONS_MAX:
            raise ExchangeRefused(
                f"the server asks for {first.iterations} iterations; {scram.ITERATIONS_MIN} to {scram.ITERATIONS_MAX} "
                f"are accepted"
            )
        keys = self._keys_of(first.salt, first.iterations)
        without_proof = scram.client_final_without_proof(self._first.header, first.nonce)
        auth_message = f"{self._first.bare},{message.decode()},{without_proof}"
        stored_key = scram.digest(self.mechanism, keys.client_key)
        proof = scram.xor(keys.client_key, scram.signature(self.mechanism, stored_key, auth_message))
        self._expected = scram.write_server_final(scram.signature(self.mechanism, keys.server_key, auth_message))[2:]
        self._begun = True
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _keys_of(self, salt: bytes, iterations: int) -> ScramKeys:
        found = self._keys.get((salt, iterations))
        if found is None:
            salted = scram.salted_password(self.mechanism, self._password, salt, iterations)
            found = scram.keys_of(self.mechanism, salted)
            if len(self._keys) >= _KEYS_KEPT_MAX:
                self._keys.clear()
            self._keys[salt, iterations] = found
        return found

    def _check(self, message: bytes) -> None:
        signed = scram.read_server_final(message)
        if not hmac.compare_digest(b64encode(signed), self._expected):
            raise ExchangeRefused(
                "the server does not know this user's password: it may not be the server that it claims to be"
            )
        self.is_complete = True
