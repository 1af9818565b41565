"""What Windows lacks: the client works without poll and sendmsg, on event loops that are not asyncio's own, too."""

import socket
import subprocess
import sys

import pytest
import uvloop

from headrace.client import aio
from headrace.client.consumer.consumer import Consumer
from headrace.client.core import connection
from headrace.client.operations.admin import Admin
from headrace.client.producer.producer import Producer
from headrace.network.transport import PlainTransport
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.eventually import collected
from tests.harness import child_environment

WITHOUT_UNIX = """
import asyncio, importlib, os, pkgutil, select, signal, socket, subprocess, sys

ABSENT = {"fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty", "uvloop"}
UNIX = {
    os: "fork geteuid getpgid getuid killpg mkfifo posix_fadvise posix_fallocate pread preadv pwrite pwritev readv "
    "register_at_fork sched_getaffinity sendfile setsid statvfs writev O_CLOEXEC O_DIRECTORY RWF_NOWAIT",
    select: "epoll poll",
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGUSR1 SIGUSR2 pthread_sigmask sigwait",
    socket: "MSG_DONTWAIT MSG_MORE MSG_NOSIGNAL SO_PEERCRED SO_REUSEPORT TCP_INFO TCP_KEEPIDLE TCP_QUICKACK "
    "TCP_USER_TIMEOUT",
}

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ABSENT:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Finder())
for module, names in UNIX.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

import headrace.client
for module in pkgutil.walk_packages(headrace.client.__path__, "headrace.client."):
    importlib.import_module(module.name)

from headrace import Consumer, Producer
from headrace.client import aio

bootstrap, topic = sys.argv[1:]
with Producer(bootstrap) as producer:
    producer.send_columns(topic, None, [b"%d" % number for number in range(1_000)])
    producer.send(topic, b"last")
with Consumer(bootstrap, group_id=topic, auto_offset_reset="earliest") as consumer:
    consumer.subscribe([topic])
    for record in consumer:
        if record.value == b"last":
            break
    consumer.commit()

async def main():
    async with aio.Producer(bootstrap) as producer:
        await producer.send_and_wait(topic, b"more")
    async with aio.Consumer(bootstrap, group_id=topic) as consumer:
        await consumer.subscribe([topic])
        return (await consumer.getone()).value

print(record.offset, asyncio.run(main()))
"""


class SocketWithoutSendmsg(socket.socket):
    """As on Windows."""

    def __getattribute__(self, name: str) -> object:
        if name == "sendmsg":
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_records_come_and_go_by_select(broker: str, admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_poll", connection._by_select)
    topic = topic_name("select")
    admin.create_topic(topic, 1, 1)
    with Producer(broker) as producer:
        for number in range(500):
            producer.send(topic, b"%d" % number * 1000)
    with Consumer(broker, auto_offset_reset="earliest", group_id=topic) as consumer:
        consumer.subscribe([topic])
        found = collected(lambda _: consumer.poll(200), 500)
    assert [record.offset for record in found] == list(range(500))


@pytest.mark.slow
def test_the_client_works_without_what_only_unix_has(broker: str, admin: Admin) -> None:
    topic = topic_name("without-unix")
    admin.create_topic(topic, 1, 1)
    command = [sys.executable, "-c", WITHOUT_UNIX, broker, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=child_environment(), check=False)
    assert (done.stdout, done.stderr) == ("1000 b'more'\n", "")


def test_pieces_are_sent_one_by_one_where_they_cannot_be_sent_together() -> None:
    ours, theirs = socket.socketpair()
    with SocketWithoutSendmsg(fileno=ours.detach()) as alone, theirs:
        assert PlainTransport(alone).send_parts([memoryview(b"tea"), memoryview(b"bun")]) == 3
        assert theirs.recv(10) == b"tea"


def test_the_asyncio_face_runs_on_uvloop(broker: str, admin: Admin) -> None:
    topic = topic_name("uvloop")
    admin.create_topic(topic, 1, 1)

    async def main() -> list[int]:
        async with aio.Producer(broker) as producer:
            sent = [await producer.send(topic, b"%d" % number) for number in range(1_000)]
            places = [await delivery for delivery in sent]
        found = []
        async with aio.Consumer(broker, auto_offset_reset="earliest") as consumer:
            await consumer.assign([TopicPartition(topic, 0)])
            async for record in consumer:
                found.append(record.offset)
                if len(found) == len(places):
                    break
        return found

    assert uvloop.run(main()) == list(range(1_000))
