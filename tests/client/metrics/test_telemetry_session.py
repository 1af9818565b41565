"""What a client pushes and when, by scripted answers; its bytes are read by the broker's decoder."""

from __future__ import annotations

import math

import pytest

from headrace.broker.telemetry.otlp import Metric, read_metrics
from headrace.client.metrics.registry import GroupName
from headrace.client.metrics.telemetry_session import RETRY_MS, TelemetrySession, telemetry_name
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.records.codecs.compression import Codec, decompress

OWN, NODE = GroupName("producer-metrics"), GroupName("producer-node-metrics", "node-id", "node-1")
SENT = "org.apache.kafka.producer.record.send.total"
LATENCY = "org.apache.kafka.producer.node.request.latency.avg"


def session(draw: float = 0.0) -> TelemetrySession:
    return TelemetrySession(lambda: {"transactional_id": "till-1", "group_id": None}, lambda: draw, 0)


def subscription(
    *metrics: str, delta: bool = True, codecs: tuple[Codec, ...] = (), interval_ms: int = 1_000
) -> m.GetTelemetrySubscriptionsResponse:
    return m.GetTelemetrySubscriptionsResponse(
        client_instance_id=b"i" * 16,
        subscription_id=7,
        accepted_compression_types=[int(codec) for codec in codecs],
        push_interval_ms=interval_ms,
        telemetry_max_bytes=1 << 20,
        delta_temporality=delta,
        requested_metrics=list(metrics),
    )


def pushed(made: TelemetrySession, sent: float, *, terminating: bool = False) -> m.PushTelemetryRequest:
    values = [(OWN, "record-send-total", sent), (NODE, "request-latency-avg", 2.5), (OWN, "batch-size-avg", math.nan)]
    request = made.request(values, 10**18, terminating=terminating)
    assert isinstance(request, m.PushTelemetryRequest)
    return request


def read(request: m.PushTelemetryRequest) -> dict[str, Metric]:
    payload = decompress(Codec(request.compression_type), bytes(request.metrics), 1 << 20)
    return {metric.name: metric for metric in read_metrics(payload)}


def test_a_push_has_the_values_as_sums_and_gauges_with_their_attributes() -> None:
    made = session()
    made.subscribed(subscription("*"), 0)
    request = pushed(made, 5)
    found = read(request)
    resource = (("transactional_id", "till-1"),)
    assert found == {
        SENT: Metric(SENT, True, True, [((), 5.0)], resource),
        LATENCY: Metric(
            LATENCY, is_counter=False, is_delta=False, points=[((("node_id", "node-1"),), 2.5)], resource=resource
        ),
    }
    assert (request.client_instance_id, request.subscription_id, request.terminating) == (b"i" * 16, 7, False)


def test_sums_count_from_the_last_push_that_was_taken() -> None:
    made = session()
    made.subscribed(subscription(""), 0)
    assert read(pushed(made, 5))[SENT].points == [((), 5.0)]
    made.pushed(ErrorCode.THROTTLING_QUOTA_EXCEEDED, 0)
    assert read(pushed(made, 6))[SENT].points == [((), 6.0)]
    made.pushed(0, 0)
    assert read(pushed(made, 9))[SENT].points == [((), 3.0)]


def test_sums_count_from_the_beginning_where_the_broker_wants_that() -> None:
    made = session()
    made.subscribed(subscription("*", delta=False), 0)
    for sent in (5, 9):
        found = read(pushed(made, sent))[SENT]
        assert (found.points, found.is_delta) == ([((), float(sent))], False)
        made.pushed(0, 0)


def test_only_what_begins_as_asked_is_pushed() -> None:
    made = session()
    made.subscribed(subscription("org.apache.kafka.producer.node.", "org.apache.kafka.consumer"), 0)
    assert set(read(pushed(made, 5))) == {LATENCY}


@pytest.mark.parametrize("accepted", [(Codec.ZSTD, Codec.GZIP), (Codec.LZ4,), (Codec.SNAPPY,), (Codec.GZIP,), ()])
def test_the_first_codec_that_the_broker_takes_is_used(accepted: tuple[Codec, ...]) -> None:
    made = session()
    made.subscribed(subscription("*", codecs=accepted), 0)
    request = pushed(made, 5)
    assert request.compression_type == (accepted[0] if accepted else Codec.NONE)
    assert set(read(request)) == {SENT, LATENCY}


def test_pushes_begin_at_half_an_interval_to_one_and_a_half_and_come_by_the_interval() -> None:
    for draw, first_ms in ((0.0, 500), (0.99, 1_490)):
        made = session(draw)
        assert made.wait_ms(0) == 0
        assert isinstance(made.request([], 0), m.GetTelemetrySubscriptionsRequest)
        made.subscribed(subscription("*"), 0)
        assert made.wait_ms(0) == pytest.approx(first_ms)
        made.pushed(0, 2_000)
        assert made.wait_ms(2_000) == 1_000


def test_a_subscription_to_nothing_is_asked_for_again_with_the_same_id() -> None:
    made = session()
    made.subscribed(subscription(interval_ms=9_000), 0)
    assert made.wait_ms(0) == 9_000
    request = made.request([], 0)
    assert isinstance(request, m.GetTelemetrySubscriptionsRequest)
    assert request.client_instance_id == b"i" * 16
    assert made.request([], 0, terminating=True) is None


def test_a_changed_subscription_is_asked_for_at_once() -> None:
    made = session()
    made.subscribed(subscription("*"), 0)
    made.pushed(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, 5_000)
    assert made.wait_ms(5_000) == 0
    assert isinstance(made.request([], 0), m.GetTelemetrySubscriptionsRequest)


@pytest.mark.parametrize("code", [ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED])
def test_other_refusals_wait_for_the_next_interval(code: ErrorCode) -> None:
    made = session()
    made.subscribed(subscription("*"), 0)
    made.pushed(code, 5_000)
    assert made.wait_ms(5_000) == 1_000
    assert not made.is_over


def test_a_refusal_for_good_is_the_end() -> None:
    made = session()
    made.subscribed(m.GetTelemetrySubscriptionsResponse(error_code=ErrorCode.INVALID_REQUEST), 0)
    assert made.is_over


def test_without_an_answer_it_is_tried_again_later() -> None:
    made = session()
    made.unanswered(0)
    assert made.wait_ms(0) == RETRY_MS
    made.subscribed(subscription("*"), 0)
    made.unanswered(0)
    assert made.wait_ms(0) == 1_000


def test_the_last_push_says_so() -> None:
    made = session()
    made.subscribed(subscription("*"), 0)
    assert pushed(made, 5, terminating=True).terminating


@pytest.mark.parametrize(
    ("group", "name", "known"),
    [
        ("producer-metrics", "connection-creation-rate", "producer.connection.creation.rate"),
        ("producer-node-metrics", "request-latency-max", "producer.node.request.latency.max"),
        ("consumer-coordinator-metrics", "commit-latency-avg", "consumer.coordinator.commit.latency.avg"),
        ("consumer-fetch-manager-metrics", "fetch-latency-avg", "consumer.fetch.manager.fetch.latency.avg"),
    ],
)  # fmt: skip
def test_names_are_those_that_the_proposal_requires(group: str, name: str, known: str) -> None:
    assert telemetry_name(group, name) == f"org.apache.kafka.{known}"
