"""SASL on a connection to another broker: runs the client's conversation, with its costly steps on a thread."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.network.peers.peer_connection import PeerConnection
from headrace.protocol.codec.message import Message
from headrace.protocol.conversation.authentication import authentication

if TYPE_CHECKING:
    from headrace.network.peers.peer_security import PeerLogin
    from headrace.protocol.conversation.authentication import Authentication, Mechanism

    Step = tuple[Message, int] | int


async def authenticate(connection: PeerConnection, name: str, client: Mechanism, login: PeerLogin) -> int:
    """Authenticates to the broker `name`. Returns the lifetime of the session in ms, 0 if it has no end. Raises
    `AuthenticationFailed`, `PeerUnreachable`, `InvalidRequest`, `UnsupportedVersion`."""
    asking = authentication(name, client, connection.versions)
    step = _advanced(asking, None)
    while not isinstance(step, int):
        request, version = step
        frame = await connection.send(request, version)
        step = await login.run(
            partial(_advanced, asking, frame)
        )  # PBKDF2 takes milliseconds, and a ticket may take longer
    return step


def _advanced(asking: Authentication, frame: memoryview | None) -> Step:
    """The next request and its version, or the lifetime at the end."""
    try:
        return next(asking) if frame is None else asking.send(frame)
    except StopIteration as done:
        return int(done.value)
