"""The client side of SASL DIGEST-MD5, as ZooKeeper's servers speak it. Sans-IO.

    client   nothing
    server   realm="zk-sasl-md5",nonce="…",charset=utf-8,algorithm=md5-sess,qop="auth"
    client   charset=utf-8,username="…",realm="…",nonce="…",nc=00000001,cnonce="…",
             digest-uri="zookeeper/zk-sasl-md5",response=…,qop=auth
    server   rspauth=…                 proves that the server knows the password too

Source: RFC 2831, ZooKeeper's `SecurityUtils`. Left out: integrity and confidentiality (`qop` other than auth), which
ZooKeeper does not offer; TLS gives both.
"""

import hashlib
import hmac
import re
from collections.abc import Callable

REALM = "zk-sasl-md5"
"""ZooKeeper's realm, and the host in its digest URI, whatever the server's name."""

_PAIR = re.compile(rb'\s*([a-z-]{1,32})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)', re.ASCII | re.DOTALL)
_CHALLENGE_BYTES_MAX = 2048  # by RFC 2831


class DigestRefused(Exception):
    """The server's part of the conversation is not what the mechanism demands."""


class DigestMd5:
    """One authentication, as other SASL clients are: `respond` takes each message of the server, first None."""

    mechanism = "DIGEST-MD5"

    def __init__(self, username: str, password: str, random_bytes: Callable[[int], bytes]) -> None:
        """`random_bytes`: a source that nobody can guess."""
        self._username, self._password = username, password
        self._cnonce = random_bytes(16).hex().encode()
        self._expected: bytes | None = None
        self.is_complete = False

    def respond(self, message: bytes | None) -> bytes:
        """The next message for the server. `is_complete` when the server has proved itself. Raises `DigestRefused`."""
        if not message:
            return b""
        if self._expected is None:
            return self._response(parse(message))
        if not hmac.compare_digest(parse(message).get("rspauth", b""), self._expected):
            raise DigestRefused("the server did not prove that it knows the password")
        self.is_complete = True
        return b""

    def _response(self, challenge: dict[str, bytes]) -> bytes:
        nonce, realm = challenge.get("nonce", b""), challenge.get("realm", REALM.encode())
        if not nonce or challenge.get("algorithm") != b"md5-sess":
            raise DigestRefused("the server's challenge has no nonce or not the algorithm md5-sess")
        if b"auth" not in [each.strip() for each in challenge.get("qop", b"auth").split(b",")]:
            raise DigestRefused("the server demands more than authentication (qop)")
        uri = f"zookeeper/{REALM}".encode()
        user, password = self._username.encode(), self._password.encode()
        secret = _md5(b":".join((user, realm, password))).digest()
        a1 = _md5(b":".join((secret, nonce, self._cnonce))).hexdigest().encode()

        def proof(a2: bytes) -> bytes:
            hashed = _md5(a2).hexdigest().encode()
            return _md5(b":".join((a1, nonce, b"00000001", self._cnonce, b"auth", hashed))).hexdigest().encode()

        self._expected = proof(b":" + uri)
        parts = {
            b"charset": b"utf-8",
            b"username": _quoted(user),
            b"realm": _quoted(realm),
            b"nonce": _quoted(nonce),
            b"nc": b"00000001",
            b"cnonce": _quoted(self._cnonce),
            b"digest-uri": _quoted(uri),
            b"response": proof(b"AUTHENTICATE:" + uri),
            b"qop": b"auth",
        }
        return b",".join(name + b"=" + value for name, value in parts.items())


def parse(message: bytes) -> dict[str, bytes]:
    """The values by name; of a repeated name the last. Raises `DigestRefused` when it is malformed or too long."""
    found: dict[str, bytes] = {}
    position = 0
    while position < len(message) <= _CHALLENGE_BYTES_MAX:
        pair = _PAIR.match(message, position)
        if pair is None:
            break
        name, quoted, plain = pair.groups()
        found[name.decode()] = re.sub(rb"\\(.)", rb"\1", quoted) if quoted is not None else plain
        position = pair.end()
    if position < len(message):
        raise DigestRefused("the server's message is malformed")
    return found


def _quoted(value: bytes) -> bytes:
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _md5(data: bytes) -> "hashlib._Hash":
    """The mechanism is built on MD5; a FIPS build of OpenSSL allows it only when told that it is no signature."""
    return hashlib.md5(data, usedforsecurity=False)
