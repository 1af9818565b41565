"""An issuer of bearer tokens for tests: keys, signed tokens, and an HTTP server with its JWKS and token endpoint."""

import json
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm


class Issuer:
    """Signs tokens with its newest key."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[Any, str]] = {}
        self.url = ""
        self.answers_slowly = False
        self.fetches = 0
        self.add_key("first")

    def add_key(self, kid: str, algorithm: str = "RS256") -> None:
        """A further key, with which tokens are signed from now on."""
        made: Any = ec.generate_private_key(ec.SECP256R1())
        if algorithm != "ES256":
            made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.keys[kid] = (made, algorithm)

    def token(self, kid: str | None = None, *, header: dict[str, object] | None = None, **claims: object) -> str:
        """A token that is good apart from these claims."""
        name = kid or list(self.keys)[-1]
        key, algorithm = self.keys[name]
        now = int(time.time())
        payload = {"sub": "alice", "iat": now, "exp": now + 600, "iss": "issuer", "aud": "kafka", **claims}
        return jwt.encode(payload, key, algorithm, headers={"kid": name, **(header or {})})

    def jwks(self) -> bytes:
        """The public keys."""
        found = []
        for kid, (key, algorithm) in self.keys.items():
            kind = ECAlgorithm if algorithm == "ES256" else RSAAlgorithm
            found.append({**json.loads(kind.to_jwk(key.public_key())), "kid": kid, "use": "sig"})
        return json.dumps({"keys": found}).encode()


@contextmanager
def served(issuer: Issuer, tls: SSLContext | None = None) -> Iterator[Issuer]:
    """`issuer.url` has /jwks, and /token for the client `robot` with the secret `s3=cret`; by https with `tls`."""
    expected = "Basic " + b64encode(b"robot:s3=cret").decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.fetches += 1
            self._answer(200, issuer.jwks())

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.path == "/elsewhere":
                self.send_response(302)
                self.send_header("Location", f"{issuer.url}/token")
                self.end_headers()
            elif self.headers["Authorization"] != expected or "grant_type=client_credentials" not in form:
                self._answer(401, b"{}")
            else:
                self._answer(
                    200, json.dumps({"access_token": issuer.token(sub="robot"), "token_type": "Bearer"}).encode()
                )

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    issuer.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
