"""Ten thousand half-open handshakes: bounded memory, and others are served."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from headrace.network.tls.contexts import client_context
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.certificates import client_settings, server_settings
from tests.eventually import WITHIN_SECONDS
from tests.harness import HeadraceServer, free_ports

pytestmark = pytest.mark.slow

SILENT, BEGUN = 9_000, 1_500
MEMORY_BYTES_MAX = 150 << 20
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raises the limit of descriptors of this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < SILENT + BEGUN + 500:
        pytest.skip(f"a process may have {before[1]} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def ask(directory: Path, port: int) -> int:
    """The number of brokers that a new client is told of."""
    with Asker(f"127.0.0.1:{port}") as asker:
        context = client_context(client_settings(directory))
        asker.socket = context.wrap_socket(asker.socket, server_hostname="localhost")
        return len(asker.ask(m.MetadataRequest(topics=[]), 9).brokers)


@pytest.mark.usefixtures("many_files")
def test_ten_thousand_half_open_handshakes_take_bounded_memory_and_others_are_served(tmp_path: Path) -> None:
    [port] = free_ports(1)
    server = HeadraceServer(tmp_path / "data", server_settings(tmp_path), listen=f"SSL://127.0.0.1:{port}").start()
    with ExitStack() as stack:
        stack.callback(server.stop)
        assert server.process is not None
        assert ask(tmp_path, port) == 1
        before = psutil.Process(server.process.pid).memory_info().rss
        for number in range(SILENT + BEGUN):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), WITHIN_SECONDS))
            if number >= SILENT:
                sock.sendall(HELLO)
        for _ in range(3):
            assert ask(tmp_path, port) == 1
        assert psutil.Process(server.process.pid).memory_info().rss - before < MEMORY_BYTES_MAX
