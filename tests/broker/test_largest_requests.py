"""The largest requests that are accepted do not hold up other clients.

Each registered API gets requests of thousands of repeated, unknown and illegal elements, made from its schema, so that
an API which is added is tried too. Another client produces meanwhile, on a connection of its own: what it waits for is
what the broker's event loop does in one go. It is measured as processor time of that thread, which other processes of
the machine do not make longer.
"""

import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import pytest

from headrace.broker.handlers import all_modules
from headrace.limits import ELEMENTS_PER_REQUEST_MAX, PARTITIONS_PER_PRODUCE_MAX
from headrace.protocol import messages
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec import schema
from headrace.protocol.codec.decoding import elements_max
from headrace.protocol.codec.message import Message
from headrace.protocol.headers import write_request_header
from tests import rotation
from tests.asker import Asker
from tests.broker.acl_requests import AUTHORIZED, create, rule
from tests.broker.siege import loop_seconds
from tests.harness import HeadraceServer, receive_frame, stop_process
from tests.machine import processor_seconds
from tests.wire import Wire, batch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="processor time is read from /proc"),
]

WAIT_SECONDS_MAX = 0.2
"""On the reference machine."""
TRIES = 3
TOPIC = "victim"
KINDS = ("repeated", "unknown", "illegal")
DAYS = 5
"""Each API gets each kind once in so many days: all of them take a minute and a half of processor time."""

VALUES = {
    "broker_id": 99,
    "controller_epoch": -1,  # no controller's that is heard
    "election_type": 0,
    "endpoint_type": 1,
    "generation_id_or_member_epoch": -1,
    "acks": -1,
    "num_partitions": 0,  # no topic is created
    "count": 1,
    "replica_id": -1,
    "resource_type": 2,
    "resource_types": 2,
    "session_timeout_ms": 10_000,
    "timestamp": -1,
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "max_wait_ms": 100,
    "session_epoch": -1,
    "allow_auto_topic_creation": False,
    "protocol_type": "consumer",
    "path": "/nowhere",
    "acknowledge_types": 1,
}
BY_NAME = {ApiKey.FETCH: 12, ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 7, ApiKey.PRODUCE: 12, ApiKey.METADATA: 9}
"""The last version that names topics, or one group, where a later one does otherwise."""
SPARE = 100
"""Elements for the arrays of one element on the way down."""


class Filler:
    """Makes requests of one API at one version."""

    def __init__(self, request: str, version: int, kind: str, elements: int = ELEMENTS_PER_REQUEST_MAX - SPARE) -> None:
        self._schema = schema.load(request)
        self._class: Any = getattr(messages, request)
        self._version, self._kind, self._elements = (
            version,
            kind,
            min(elements_max(self._schema) - SPARE, elements),
        )
        if request == "ProduceRequest":
            self._elements = min(PARTITIONS_PER_PRODUCE_MAX, elements)

    def requests(self) -> Iterator[Any]:
        """One for each array on the way down, with the many elements there, and one element in the others."""
        paths = list(self._paths("")) or [()]
        for path in paths:
            yield self._struct(self._class, "", path, 0)

    def _fields(self, struct: str) -> list[schema.Field]:
        return [field for field in self._schema.structs[struct] if self._version in field.versions]

    def _paths(self, struct: str) -> Iterator[tuple[str, ...]]:
        for field in self._fields(struct):
            if field.is_array:
                yield (field.name,)
                if field.is_struct:
                    yield from ((field.name, *path) for path in self._paths(field.type))

    def _struct(self, cls: Any, struct: str, path: tuple[str, ...], number: int) -> Any:
        values = {}
        for field in self._fields(struct):
            if not field.is_array:
                value = self._value(field, number)
                if value is not None:
                    values[field.name] = value
                continue
            is_many = path[:1] == (field.name,)
            count = self._elements if is_many and len(path) == 1 else 1
            if is_many and len(path) == 1 and field.is_struct:  # each has elements of its own
                count //= 1 + len(list(self._paths(field.type)))
            deeper = path[1:] if is_many else ()
            values[field.name] = [self._element(field, deeper, each) for each in range(count)]
        return cls(**values)

    def _element(self, field: schema.Field, path: tuple[str, ...], number: int) -> Any:
        if field.is_struct:
            return self._struct(getattr(self._class, field.type), field.type, path, number)
        if field.type == "string":
            return self._name(number)
        if field.name in VALUES:
            return VALUES[field.name]
        return 0 if self._kind == "repeated" else number

    def _value(self, field: schema.Field, number: int) -> Any:
        if field.name in VALUES:
            return VALUES[field.name]
        if field.type == "string":
            return self._name(number)
        if field.name in ("partition_index", "index", "partition"):
            return 0 if self._kind == "repeated" else number
        if field.type == "records":
            return b"" if self._kind == "illegal" else bytes(batch([b"x"]))
        return None

    def _name(self, number: int) -> str:
        return {"repeated": TOPIC, "unknown": f"un.known_{number}", "illegal": f"?{number}"}[self._kind]


def requests_of(module: ModuleType, kind: str) -> Iterator[tuple[bytes, int]]:
    """Frames of as many elements as the API accepts, and their version."""
    name = "".join(part.capitalize() for part in module.API_KEY.name.split("_")) + "Request"
    for version in sorted({module.VERSIONS[-1], BY_NAME.get(module.API_KEY, module.VERSIONS[-1])}):
        for request in Filler(name, version, kind).requests():
            yield framed(module.API_KEY, request, version)


def framed(api_key: ApiKey, request: Message, version: int) -> tuple[bytes, int]:
    body = write_request_header(api_key, version, 1, "many") + request.encode(version)
    return len(body).to_bytes(4, "big") + body, version


class Producer:
    """Produces one record after the other; `worst` is the most that the broker's event loop did during one of them."""

    def __init__(self, server: HeadraceServer) -> None:
        self.worst = 0.0
        self._server = server
        self._wire = Wire(server.bootstrap)
        self._wire.create_topic("another")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer")

    def __enter__(self) -> "Producer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._wire.socket.close()

    def _run(self) -> None:
        record = batch([b"value"])
        while not self._stop.wait(0.001):
            began = loop_seconds(self._server)
            assert self._wire.produce("another", record).error_code == 0
            self.worst = max(self.worst, loop_seconds(self._server) - began)

    def longest_wait(self, during: Any) -> float:
        """The longest wait while `during` is called."""
        time.sleep(0.01)
        self.worst = 0.0
        during()
        time.sleep(0.02)
        return self.worst


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    running = HeadraceServer(tmp_path_factory.mktemp("largest") / "data").start()
    with Wire(running.bootstrap) as wire:
        wire.create_topic(TOPIC, 3)
    yield running
    assert running.process is not None
    stop_process(running.process)


@pytest.fixture(scope="module")
def producer(server: HeadraceServer) -> Iterator[Producer]:
    with Producer(server) as running:
        yield running


def exchange(server: HeadraceServer, frame: bytes) -> None:
    """Sends it and reads the answer. A connection that ends without one would show nothing."""
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        connection.sendall(frame)
        receive_frame(connection)


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    """A server with an authorizer: half of the unknown names are forbidden."""
    settings = {**AUTHORIZED, "super.users": "", "allow.everyone.if.no.acl.found": "true"}
    running = HeadraceServer(tmp_path_factory.mktemp("ruled") / "data", settings).start()
    with Wire(running.bootstrap) as wire:
        wire.create_topic(TOPIC, 3)
    with Asker(running.bootstrap) as asker:
        rules = [
            rule(f"{kind}:un.known_{digit}*", "All", "User:*", permission="Deny")
            for kind in ("Topic", "Group", "TransactionalId")
            for digit in (1, 3, 55, 777)
        ]
        assert {error for error, _ in create(asker, *rules)} == {0}
    yield running
    assert running.process is not None
    stop_process(running.process)


@pytest.fixture(scope="module")
def producer_beside_rules(ruled: HeadraceServer) -> Iterator[Producer]:
    with Producer(ruled) as running:
        yield running


@pytest.mark.soak
@pytest.mark.parametrize("module", all_modules(), ids=lambda module: module.API_KEY.name)
def test_another_client_does_not_wait_for_decisions_about_a_large_request(
    ruled: HeadraceServer, producer_beside_rules: Producer, module: ModuleType
) -> None:
    _compare(ruled, producer_beside_rules, module, "unknown")


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        pytest.param(module, kind, marks=rotation.unless_today(number, DAYS, turn), id=f"{kind}-{module.API_KEY.name}")
        for turn, module in enumerate(all_modules())
        for number, kind in enumerate(KINDS)
    ],
)
def test_another_client_does_not_wait_for_a_large_request(
    server: HeadraceServer, producer: Producer, module: ModuleType, kind: str
) -> None:
    _compare(server, producer, module, kind)


def _compare(server: HeadraceServer, producer: Producer, module: ModuleType, kind: str) -> None:
    """The shortest wait of some tries counts: a collection of garbage may fall into single ones."""
    for frame, version in requests_of(module, kind):
        waits = []
        wait_seconds_max = processor_seconds(WAIT_SECONDS_MAX)
        for _ in range(TRIES):
            waits.append(producer.longest_wait(partial(exchange, server, frame)))
            if waits[-1] <= wait_seconds_max:
                break
        print(f"{module.API_KEY.name} {version} {kind}, {len(frame)} bytes: {min(waits) * 1000:.0f} ms")
        assert min(waits) <= wait_seconds_max, f"version {version}, {len(frame)} bytes"
