"""The asking side of a connection: each request gets its own answer, and versions are agreed on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ErrorCode, InvalidRequest, KafkaError, UnsupportedVersion
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.conversation.asking import SCRATCH_BYTES, Conversation, UnexpectedAnswer
from headrace.protocol.conversation.frames import SpareBuffers
from headrace.protocol.conversation.negotiation import Negotiated, negotiation
from headrace.protocol.headers import read_request_header, response_header

LARGE = 2 * SCRATCH_BYTES


def conversation(spares: SpareBuffers | None = None, answer_bytes_max: int = 1 << 20) -> Conversation[int]:
    return Conversation("test", answer_bytes_max=answer_bytes_max, spares=spares)


def ask(talk: Conversation[int], waiter: int) -> int:
    """A request that is sent; its correlation id."""
    correlation_id, header = talk.header(ApiKey.METADATA, 12)
    assert read_request_header(header)[0] == (ApiKey.METADATA, 12, correlation_id, "test")
    talk.expect(correlation_id, waiter)
    return correlation_id


def answer(correlation_id: int, body: bytes = b"") -> bytes:
    return (4 + len(body)).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + body


def feed(talk: Conversation[int], data: bytes, sizes: list[int]) -> list[tuple[int, memoryview]]:
    """Gives `data` in pieces of `sizes` (repeated), as a socket would; what is answered."""
    found, pos, turn = [], 0, 0
    while pos < len(data):
        room = talk.target()
        take = min(len(room), sizes[turn % len(sizes)], len(data) - pos)
        room[:take] = data[pos : pos + take]
        pos, turn = pos + take, turn + 1
        found += list(talk.received(take))
    return found


BODIES = st.lists(st.one_of(st.binary(max_size=50), st.integers(0, 3 * SCRATCH_BYTES).map(bytes)), max_size=6)


@pytest.mark.parametrize("is_trusting", [False, True])
@given(bodies=BODIES, sizes=st.lists(st.integers(1, 2 * SCRATCH_BYTES), min_size=1, max_size=5))
def test_each_request_gets_its_answer_however_the_stream_is_cut(
    is_trusting: bool, bodies: list[bytes], sizes: list[int]
) -> None:
    talk = conversation(SpareBuffers() if is_trusting else None)
    ids = [ask(talk, number) for number in range(len(bodies))]
    stream = b"".join(map(answer, ids, bodies))
    found = feed(talk, stream, sizes)
    assert [(waiter, bytes(frame[4:])) for waiter, frame in found] == list(enumerate(bodies))
    assert len(talk) == 0


@pytest.mark.parametrize("size", [SCRATCH_BYTES - 9, SCRATCH_BYTES - 8, SCRATCH_BYTES - 7, SCRATCH_BYTES])
def test_answers_around_the_size_of_the_scratch_buffer_are_whole(size: int) -> None:
    talk = conversation(SpareBuffers())
    first, second = ask(talk, 1), ask(talk, 2)
    found = feed(talk, answer(first, b"x" * size) + answer(second, b"next"), [1000])
    assert [bytes(frame[4:]) for _, frame in found] == [b"x" * size, b"next"]


def test_a_small_answer_does_not_change_when_the_next_one_arrives() -> None:
    talk = conversation()
    ((_, first),) = feed(talk, answer(ask(talk, 1), b"abc"), [100])
    feed(talk, answer(ask(talk, 2), b"xyz"), [100])
    assert bytes(first[4:]) == b"abc"


def test_a_large_answer_that_is_still_looked_at_is_not_written_over() -> None:
    talk = conversation(SpareBuffers())
    held = []
    for number in range(5):
        ((_, frame),) = feed(talk, answer(ask(talk, number), bytes([number]) * LARGE), [LARGE])
        held.append(frame[4:])
        if number == 2:
            del held[0], frame
    assert [(len(each), set(each)) for each in held] == [(LARGE, {number}) for number in (1, 2, 3, 4)]


def test_the_buffer_of_a_large_answer_is_used_again_when_nobody_looks_at_it() -> None:
    talk = conversation(SpareBuffers())
    ((_, frame),) = feed(talk, answer(ask(talk, 1), bytes(LARGE)), [LARGE])
    first = frame.obj
    del frame
    ((_, frame),) = feed(talk, answer(ask(talk, 2), bytes(LARGE - 100)), [LARGE])
    assert frame.obj is first


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x00\x00\x01\x01", b"HTTP"])
def test_an_answer_of_an_impossible_size_is_refused(size: bytes) -> None:
    with pytest.raises(InvalidRequest, match="Is this a Kafka broker"):
        feed(conversation(answer_bytes_max=256), size, [4])


def test_an_answer_out_of_order_is_refused_behind_those_that_were_right() -> None:
    talk = conversation()
    ids = [ask(talk, number) for number in range(3)]
    stream = answer(ids[0]) + answer(ids[2]) + answer(ids[1])
    talk.target()[: len(stream)] = stream
    answered = talk.received(len(stream))
    assert next(answered)[0] == 0
    with pytest.raises(UnexpectedAnswer, match=f"unexpected response with correlation id {ids[2]}, {ids[1]} is next"):
        next(answered)
    assert list(talk.end()) == [1, 2]


@pytest.mark.parametrize("stream", [answer(1), b"\0\0\0\2\0\0"], ids=["to nothing", "too short"])
def test_an_answer_to_nothing_is_refused(stream: bytes) -> None:
    with pytest.raises(UnexpectedAnswer):
        feed(conversation(), stream, [100])


def test_correlation_ids_stay_positive() -> None:
    talk = conversation()
    talk._last_id = (1 << 31) - 2
    assert [ask(talk, 0), ask(talk, 1), ask(talk, 2)] == [(1 << 31) - 1, 0, 1]


class Broker:
    """Answers ApiVersions up to a version, as Apache Kafka of that time does."""

    def __init__(self, newest: int, *, lists_itself: bool = True, error: int = 0) -> None:
        self.newest, self.lists_itself, self.error = newest, lists_itself, error
        self.asked: list[int] = []

    def answer(self, version: int) -> memoryview:
        self.asked.append(version)
        ranges = [m.ApiVersionsResponse.ApiVersion(api_key=ApiKey.FETCH, min_version=4, max_version=11)]
        if self.lists_itself:
            own = m.ApiVersionsResponse.ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=self.newest)
            ranges.append(own)
        is_too_new = version > self.newest
        error = int(ErrorCode.UNSUPPORTED_VERSION) if is_too_new else self.error
        body = m.ApiVersionsResponse(error_code=error, api_keys=ranges).encode(0 if is_too_new else version)
        return memoryview(response_header(ApiKey.API_VERSIONS, version, 7) + body)

    def negotiate(self) -> object:
        asking = negotiation("the broker")
        _, version = next(asking)
        while True:
            try:
                _, version = asking.send(self.answer(version))
            except StopIteration as done:
                return done.value


NEWEST = m.ApiVersionsRequest.VERSIONS[-1]


@pytest.mark.parametrize(
    ("broker", "asked"),
    [
        (Broker(NEWEST), [NEWEST]),
        (Broker(2), [NEWEST, 2]),
        (Broker(0), [NEWEST, 0]),
        (Broker(0, lists_itself=False), [NEWEST, 0]),
    ],
    ids=["of today", "with version 2", "with version 0", "before Kafka 2.4"],
)
def test_versions_are_agreed_on_with_a_broker(broker: Broker, asked: list[int]) -> None:
    served = broker.negotiate()
    assert isinstance(served, Negotiated)
    assert served.versions[ApiKey.FETCH] == (4, 11)
    assert broker.asked == asked


def test_a_broker_that_refuses_the_version_that_it_named_is_given_up() -> None:
    broker = Broker(2)

    def lying(version: int) -> memoryview:
        broker.asked.append(version)
        return Broker.answer(Broker(2), NEWEST)

    broker.answer = lying  # type: ignore[method-assign]
    with pytest.raises(UnsupportedVersion, match="refuses ApiVersions version 2"):
        broker.negotiate()
    assert broker.asked == [NEWEST, 2]


def test_a_broker_that_refuses_to_say_its_versions_is_an_error_with_its_code() -> None:
    with pytest.raises(KafkaError) as caught:
        Broker(NEWEST, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED).negotiate()
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@given(st.binary(max_size=80))
def test_whatever_a_peer_answers_ends_the_negotiation_or_goes_on(data: bytes) -> None:
    asking = negotiation("the broker")
    next(asking)
    try:
        asking.send(memoryview(data))
    except (KafkaError, StopIteration):
        pass
