"""What is under a connection: no other code touches a socket's bytes."""

import ast
from pathlib import Path

import headrace

SOURCES = Path(headrace.__file__).parent
CALLS = {"recv", "recv_into", "recvmsg", "sendall", "sendmsg", "sendfile"}
CALLS |= {"sock_recv", "sock_recv_into", "sock_sendall"}


def test_nothing_else_receives_from_a_socket_or_sends_to_one() -> None:
    found = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if any(call in (text := path.read_text()) for call in CALLS)  # to parse all sources takes a second
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in CALLS
    }
    assert found == {"network/transport.py", "network/tls/transport.py"}
