"""SCRAM-SHA-256 and SCRAM-SHA-512: formulas, credentials and messages (RFC 5802, RFC 7677).

    client first    n,[a=AUTHZID],n=NAME,r=NONCE[,tokenauth=true]
    server first    r=NONCE+MORE,s=SALT,i=ITERATIONS
    client final    c=BASE64 of the part before n=,r=NONCE+MORE,p=PROOF
    server final    v=SIGNATURE, or e=ERROR

    salted password   Hi(password, salt, iterations), which is PBKDF2
    client key        HMAC(salted password, "Client Key")          stored key   H(client key)
    server key        HMAC(salted password, "Server Key")
    auth message      client first without its first part , server first , client final without its proof
    proof             client key XOR HMAC(stored key, auth message)
    signature         HMAC(server key, auth message)

The broker stores salt, iterations, stored key and server key, and computes two HMACs for a login. Only clients compute
PBKDF2. With `tokenauth=true`, Kafka's extension for delegation tokens, the name is the id of a token and the password
is its HMAC in base64. Passwords are not prepared (SASLprep), as in Apache Kafka. Channel binding is left out.
Source: Kafka's `ScramFormatter`, `ScramMessages`, `ScramMechanism`, `ScramCredentialUtils`.
"""

import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac
from typing import NamedTuple

from headrace.security.sasl.exchange import Malformed

HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each mechanism."""

MECHANISM_NUMBERS: Mapping[str, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The numbers of the mechanisms in requests."""

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16_384
"""Fewer are refused, since passwords could be guessed faster; more would let a peer use up the other's time."""

ITERATIONS_STORED_MAX = 1_000_000
"""Of a credential that tools have written to ZooKeeper, which has no limit: half a second of a broker or a client."""

MESSAGE_BYTES_MAX = 8 << 10

_NONCE_BYTES = 24
_SALT_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
_VALUE = r"[^\x00,]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_EXTENSIONS = rf"((?:,[A-Za-z]+={_VALUE})*)"
_CLIENT_FIRST = re.compile(rf"(n,(?:a=({_NAME}))?,)(n=({_NAME}),r=({_NONCE}){_EXTENSIONS})")
_SERVER_FIRST = re.compile(rf"r=({_NONCE}),s=({_BASE64}),i=([0-9]{{1,9}}){_EXTENSIONS}")
_CLIENT_FINAL = re.compile(rf"(c=({_BASE64}),r=({_NONCE}){_EXTENSIONS}),p=({_BASE64})")
_SERVER_FINAL = re.compile(rf"(?:e=({_VALUE})|v=({_BASE64})){_EXTENSIONS}")


class ScramCredential(NamedTuple):
    """What a broker stores of a user and mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


class ScramKeys(NamedTuple):
    """What a client derives from a password, a salt and a number of iterations."""

    client_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "ScramKeys()"


class ClientFirst(NamedTuple):
    """The client's first message."""

    header: str
    """The part that says that there is no channel binding, with the authorization id."""
    bare: str
    """The rest, which is part of the auth message."""
    name: str
    nonce: str
    authzid: str = ""
    is_token: bool = False


class ServerFirst(NamedTuple):
    """The server's first message."""

    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """The client's final message."""

    without_proof: str
    channel: bytes
    nonce: str
    proof: bytes


# Formulas


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """PBKDF2: takes milliseconds, up to ten of them."""
    return pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def keys_of(mechanism: str, salted: bytes) -> ScramKeys:
    """The keys of a salted password."""
    name = HASHES[mechanism]
    return ScramKeys(hmac.digest(salted, b"Client Key", name), hmac.digest(salted, b"Server Key", name))


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """What is stored of a salted password."""
    keys = keys_of(mechanism, salted)
    return ScramCredential(salt, digest(mechanism, keys.client_key), keys.server_key, iterations)


def credential(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """What is stored of a password. Takes as long as `salted_password`."""
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def digest(mechanism: str, data: bytes) -> bytes:
    """H of the RFC."""
    return new_hash(HASHES[mechanism], data).digest()


def signature(mechanism: str, key: bytes, auth_message: str) -> bytes:
    """HMAC of the auth message."""
    return hmac.digest(key, auth_message.encode(), HASHES[mechanism])


def xor(one: bytes, other: bytes) -> bytes:
    """Of two values of the same length."""
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


def new_nonce(random: bytes) -> str:
    """A nonce of random bytes (`NONCE_BYTES`)."""
    return b64encode(random).decode().rstrip("=")


NONCE_BYTES = _NONCE_BYTES
SALT_BYTES = (_SALT_BITS + 7) // 8


def new_salt(random: bytes) -> bytes:
    """A salt of the form in which Kafka's tools make them: a number of 130 bits, in letters and digits."""
    number, digits = int.from_bytes(random, "big") >> (8 * len(random) - _SALT_BITS), []
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).encode() or b"0"


# Messages


def write_client_first(name: str, nonce: str, *, is_token: bool = False) -> ClientFirst:
    """The client's first message; its text is `header` and `bare`."""
    escaped = name.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={escaped},r={nonce}{',tokenauth=true' if is_token else ''}"
    return ClientFirst("n,,", bare, name, nonce, is_token=is_token)


def read_client_first(message: bytes) -> ClientFirst:
    """Raises `Malformed`."""
    found = _CLIENT_FIRST.fullmatch(_text(message))
    if found is None:
        raise Malformed("Invalid SCRAM client first message format")
    header, authzid, bare, name, nonce, extensions = found.groups()
    return ClientFirst(
        header, bare, _unescaped(name), nonce, _unescaped(authzid or ""), ",tokenauth=true" in extensions.lower()
    )


def write_server_first(nonce: str, salt: bytes, iterations: int) -> str:
    """The server's first message."""
    return f"r={nonce},s={b64encode(salt).decode()},i={iterations}"


def read_server_first(message: bytes) -> ServerFirst:
    """Raises `Malformed`."""
    found = _SERVER_FIRST.fullmatch(_text(message))
    if found is None:
        raise Malformed("Invalid SCRAM server first message format")
    return ServerFirst(found[1], b64decode(found[2]), int(found[3]))


def client_final_without_proof(header: str, nonce: str) -> str:
    """The client's final message up to its proof."""
    return f"c={b64encode(header.encode()).decode()},r={nonce}"


def read_client_final(message: bytes) -> ClientFinal:
    """Raises `Malformed`."""
    found = _CLIENT_FINAL.fullmatch(_text(message))
    if found is None:
        raise Malformed("Invalid SCRAM client final message format")
    return ClientFinal(found[1], b64decode(found[2]), found[3], b64decode(found[5]))


def write_server_final(signed: bytes) -> bytes:
    """The server's final message."""
    return f"v={b64encode(signed).decode()}".encode()


def read_server_final(message: bytes) -> bytes:
    """The server's signature. Raises `Malformed`, also for an error that the server reports."""
    found = _SERVER_FINAL.fullmatch(_text(message))
    if found is None:
        raise Malformed("Invalid SCRAM server final message format")
    if found[1] is not None:
        raise Malformed(f"the server reports {found[1]!r:.200}")
    return b64decode(found[2])


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise Malformed(f"a message of {len(message)} bytes: SCRAM's have at most {MESSAGE_BYTES_MAX}")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Malformed("the message is not UTF-8") from None


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


# Credentials as text


def format_credential(stored: ScramCredential) -> str:
    """`salt=...,stored_key=...,server_key=...,iterations=N`, as Apache Kafka 3.9 keeps it."""
    salt, stored_key, server_key = (b64encode(part).decode() for part in stored[:3])
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={stored.iterations}"


def parse_credential(text: str) -> ScramCredential:
    """The inverse of `format_credential`. Raises `ValueError`, which does not show the text; also for iterations that
    would take a broker or a client minutes: tools that write to ZooKeeper have no limit."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError("a credential has the fields salt, stored_key, server_key, iterations")
    try:
        salt, stored_key, server_key = (
            b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(fields["iterations"])
    except (NotBase64, ValueError):
        raise ValueError("a field of the credential is not in base64, or the iterations are no number") from None
    if not 0 < iterations <= ITERATIONS_STORED_MAX:
        raise ValueError(f"the iterations of the credential are not 1 to {ITERATIONS_STORED_MAX}")
    return ScramCredential(salt, stored_key, server_key, iterations)
