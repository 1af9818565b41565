"""Ctrl-C ends a program that waits in the client, whatever it waits for, and the group gets its partitions back."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from headrace import Admin
from headrace.client.consumer.one_thread import CallingThread, of_one_thread
from headrace.client.core.cluster import Cluster
from headrace.client.operations.group_admin import GroupAdmin
from headrace.testing import Broker
from tests.eventually import WITHIN_SECONDS
from tests.harness import child_environment

BEFORE = """
import sys
from headrace import Consumer, Producer, TopicPartition
bootstrap, topic = sys.argv[1:]
try:
"""
AFTER = """
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
WAITS = {
    "iteration in a group": """
    with Consumer(bootstrap, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment:
            consumer.poll(100)
        print("waits", flush=True)
        for record in consumer:
            pass
""",
    "poll": """
    with Consumer(bootstrap, auto_offset_reset="latest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        print("waits", flush=True)
        consumer.poll(3_600_000)
""",
    "a topic that does not exist": """
    with Producer(bootstrap, max_block_ms=3_600_000) as producer:
        print("waits", flush=True)
        producer.send("no-" + topic, b"x")
""",
    "a broker that does not answer": """
    import socket
    silent = socket.create_server(("127.0.0.1", 0))
    print("waits", flush=True)
    Producer("127.0.0.1:%d" % silent.getsockname()[1], max_block_ms=3_600_000, request_timeout_ms=3_600_000,
             delivery_timeout_ms=3_600_001).send(topic, b"x")
""",
    "a delivery that lingers": """
    with Producer(bootstrap, linger_ms=3_600_000, delivery_timeout_ms=7_200_000) as producer:
        delivery = producer.send(topic, b"x")
        print("waits", flush=True)
        delivery.result()
""",
}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(settings={"auto.create.topics.enable": False}) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("t", 1, 1)
        yield broker.bootstrap


@pytest.mark.parametrize("what", WAITS)
def test_an_interrupt_ends_the_wait(bootstrap: str, what: str) -> None:
    command = [sys.executable, "-c", BEFORE + WAITS[what] + AFTER, bootstrap, "t"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment()) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "waits\n"
        program.send_signal(signal.SIGINT)
        said, _ = program.communicate(timeout=WITHIN_SECONDS)
    assert said == "interrupted\n"
    # CPython ends by the signal, though the program caught it, if it came while a string was executed: the first use of
    # a message compiles its codec so.
    assert program.returncode in (0, -signal.SIGINT)
    with Cluster(bootstrap) as cluster:
        assert not GroupAdmin(cluster).describe_group("t").members


class Guarded:
    """Something that one thread uses."""

    def __init__(self) -> None:
        self.usage = CallingThread()

    def check_process(self) -> None:
        """It is in no fork."""

    @of_one_thread
    def call(self) -> None:
        """Nothing to do."""


def interrupted(call: Callable[[], None], line: int) -> bool:
    """Raise KeyboardInterrupt before that line of the guard, as a signal may; whether there is such a line."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith("one_thread.py"):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_at_any_line_of_a_call_leaves_the_consumer_to_its_thread() -> None:
    line = 0
    while True:
        guarded = Guarded()
        was_interrupted = interrupted(guarded.call, line)
        guarded.call()
        if not was_interrupted:
            break
        line += 1
    assert line > 5
