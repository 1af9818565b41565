"""What clients pushed: sums of deltas, limits, and the families of the metrics page."""

import asyncio
from collections.abc import Mapping

import pytest

from headrace.broker.metrics.client_telemetry import families
from headrace.broker.metrics.exposition import render
from headrace.broker.telemetry import pushed_metrics, service
from headrace.broker.telemetry.otlp import Metric
from headrace.broker.telemetry.pushed_metrics import PushedMetrics
from headrace.broker.telemetry.service import ClientTelemetry
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.records.codecs.compression import Codec, compress
from tests.broker.telemetry.otlp_writer import SUM, metric, payload
from tests.broker.telemetry.test_client_instances import ID, Connection

WHO = {"client_id": "c"}
NODE = (("node_id", "1"),)


def counted(*values: float, is_delta: bool) -> dict[str, float]:
    pushed = PushedMetrics()
    for value in values:
        pushed.take(ID, Metric("sent", True, is_delta, [((), value)], ()))
    return {series.name: value for series, value in pushed.of(ID)}


def test_deltas_are_added_up_and_totals_replaced() -> None:
    assert counted(3, 4, is_delta=True) == {"sent": 7}
    assert counted(3, 4, is_delta=False) == {"sent": 4}


def test_values_beyond_a_limit_are_dropped_and_those_of_a_gone_client_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pushed_metrics, "SERIES_PER_CLIENT_MAX", 3)
    monkeypatch.setattr(pushed_metrics, "SERIES_MAX", 4)
    pushed = PushedMetrics()
    many: list[tuple[tuple[tuple[str, str], ...], float]] = [((("n", str(n)),), n) for n in range(5)]
    for client in (ID, b"b" * 16):
        pushed.take(client, Metric("x", False, False, many, ()))
    assert (len(pushed), pushed.dropped) == (4, 6)
    pushed.forget(ID)
    pushed.take(b"b" * 16, Metric("y", False, False, many, ()))
    assert len(pushed) == 3
    pushed.take(b"c" * 16, Metric("n" * 201, False, False, [((), 1)], ()))
    pushed.take(b"c" * 16, Metric("n", False, False, [((("k", "v" * 251),), 1)], ()))
    assert len(pushed) == 3


async def pushing(
    data: bytes, codec: Codec = Codec.NONE, *, max_bytes: int = 1 << 20, now: Mapping[str, int] | None = None
) -> ClientTelemetry:
    telemetry = ClientTelemetry(
        max_bytes=max_bytes, now_ms=lambda: 10**12, new_id=lambda: ID, loop=asyncio.get_running_loop()
    )
    telemetry.configs_changed("s", {"metrics": "*"})
    connection = Connection()
    known = telemetry.get(bytes(16), WHO, connection)
    request = m.PushTelemetryRequest(
        client_instance_id=known.client_instance_id,
        subscription_id=known.subscription_id,
        compression_type=codec,
        metrics=compress(codec, data),
    )
    await telemetry.push(request, WHO, connection)
    return telemetry


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_push_of_each_codec_appears_on_the_page(codec: Codec) -> None:
    data = payload(
        metric("org.apache.kafka.producer.record.send.total", {NODE: 5}, SUM),
        metric("org.apache.kafka.producer.request.latency-avg", {(): 1.5}),
        metric("__odd name", {(("0key", 'a"\n'),): 2}),
        client_rack="east",
    )
    telemetry = await pushing(data, codec)
    page = render(list(families(telemetry, 10**12)), "text/plain")[0].decode()
    labels = 'client_id="c",client_instance_id="aWlpaWlpaWlpaWlpaWlpaQ"'
    assert f'kafka_client_producer_record_send_total{{{labels},node_id="1"}} 5.0' in page
    assert f"kafka_client_producer_request_latency_avg{{{labels}}} 1.5" in page
    assert f'kafka_client___odd_name{{attribute_0key="a\\"\\n",{labels}}} 2.0' in page
    assert 'client_rack="east"' in page


async def test_names_that_become_one_are_told_once() -> None:
    data = payload(
        metric("a.b", {(): 1}), metric("a-b", {(): 2}), metric("a_b.total", {(): 3}, SUM), metric("info", {(): 4})
    )
    telemetry = await pushing(data)
    found = [family for family in families(telemetry, 10**12) if family.name.startswith("kafka_client_")]
    assert sorted(family.name for family in found) == ["kafka_client_a_b", "kafka_client_info"]
    assert [sample.value for family in found for sample in family.samples] == [1, 1]


async def test_what_is_no_metrics_is_refused() -> None:
    for data, codec in ((b"\xff" * 9, Codec.NONE), (b"\xff" * 9, Codec.GZIP)):
        with pytest.raises(KafkaError) as refused:
            await pushing(data, codec)
        assert refused.value.code is ErrorCode.INVALID_RECORD


async def test_a_payload_that_grows_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "DECOMPRESSED_BYTES_MAX", 100_000)
    with pytest.raises(KafkaError) as refused:
        await pushing(bytes(1 << 20), Codec.ZSTD)
    assert refused.value.code is ErrorCode.INVALID_RECORD


async def test_values_of_one_push_beyond_the_limit_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "POINTS_PER_PUSH_MAX", 2)
    telemetry = await pushing(payload(*(metric(f"m{number}", {(): 1}) for number in range(5))))
    assert (len(telemetry.pushed), telemetry.pushed.dropped) == (2, 3)
