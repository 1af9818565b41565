"""The decoder of clients' metrics: what it reads, and that no bytes make it fail otherwise or run long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.telemetry import otlp
from headrace.broker.telemetry.otlp import Metric, read_metrics
from headrace.errors import CorruptMessage
from tests.broker.telemetry.otlp_writer import CUMULATIVE, DELTA, GAUGE, HISTOGRAM, SUM, message, metric, payload

NODE = (("node_id", "1"),)


def test_gauges_and_sums_are_read_with_their_attributes() -> None:
    data = payload(
        metric("latency", {NODE: 2.5, (): -1}, GAUGE),
        metric("sent", {NODE: 7}, SUM, DELTA),
        metric("total", {(): 9}, SUM, CUMULATIVE),
        metric("open", {(): 3}, SUM, CUMULATIVE, is_monotonic=False),
        metric("sizes", {(): 1}, HISTOGRAM),
        client_rack="a",
    )
    rack = (("client_rack", "a"),)
    assert read_metrics(data) == [
        Metric("latency", False, False, [(NODE, 2.5), ((), -1)], rack),
        Metric("sent", True, True, [(NODE, 7)], rack),
        Metric("total", True, False, [((), 9)], rack),
        Metric("open", False, False, [((), 3)], rack),
    ]


def test_a_payload_without_metrics_has_none() -> None:
    assert read_metrics(b"") == read_metrics(payload()) == []


@given(st.binary(max_size=300))
def test_any_bytes_are_metrics_or_a_typed_error(data: bytes) -> None:
    try:
        read_metrics(data)
    except CorruptMessage:
        pass


@given(st.data())
def test_a_damaged_payload_is_metrics_or_a_typed_error(draw: st.DataObject) -> None:
    data = bytearray(payload(metric("sent", {NODE: 7, (): 1.5}, SUM), metric("g", {(): 1}), a="b"))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        read_metrics(data[: draw.draw(st.integers(0, len(data)))])
    except CorruptMessage:
        pass


def test_a_payload_of_too_many_fields_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "FIELDS_MAX", 1000)
    with pytest.raises(CorruptMessage, match="more than 1000 fields"):
        read_metrics(message(1, b"\x78\x01" * 2000))
