"""Metrics that clients pushed, on the broker's page.

    org.apache.kafka.producer.record.send.total    kafka_client_producer_record_send_total

Each has the labels client_instance_id and client_id, and the client's own ones of that value. `kafka_client_info` has
what else is known of a client. The page has those that this broker received: a client pushes to one broker.
"""

import re
from collections.abc import Iterator

from headrace.broker.metrics.family import COUNTER, Family, Sample, counter, gauge, number
from headrace.broker.telemetry.pushed_metrics import Series
from headrace.broker.telemetry.service import ClientTelemetry
from headrace.broker.telemetry.subscriptions import (
    CLIENT_ID,
    INSTANCE_ID,
    SOFTWARE_NAME,
    SOFTWARE_VERSION,
    SOURCE_ADDRESS,
)

_INFO = "kafka_client_info"
_PREFIX = "org.apache.kafka."
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]")
_INFO_LABELS = (INSTANCE_ID, CLIENT_ID, SOFTWARE_NAME, SOFTWARE_VERSION, SOURCE_ADDRESS)


def families(telemetry: ClientTelemetry, now_ms: int) -> Iterator[Family]:
    """The service's own metrics, then those of clients."""
    telemetry.instances.forget_expired(now_ms)
    prefix = "kafka_server_client_metrics"
    yield number(f"{prefix}_instance_count", "Clients that asked for subscriptions.", len(telemetry.instances))
    yield number(f"{prefix}_series_count", "Values of clients on this page.", len(telemetry.pushed))
    for name, text, value in (
        ("throttle", "Requests of clients before their push interval was over.", telemetry.instances.throttled),
        (
            "unknown_subscription_request",
            "Pushes with another subscription.",
            telemetry.instances.unknown_subscriptions,
        ),
        ("plugin_export", "Pushes of clients.", telemetry.pushes),
        ("plugin_error", "Pushes that could not be decoded.", telemetry.malformed),
        ("dropped", "Values of clients that exceeded a limit.", telemetry.pushed.dropped),
    ):
        yield counter(f"{prefix}_{name}", text, [({}, value)])
    yield gauge(_INFO, "1 for each client that pushes metrics.", list(_infos(telemetry)))
    yield from _pushed(telemetry)


def _infos(telemetry: ClientTelemetry) -> Iterator[tuple[dict[str, str], float]]:
    for instance in telemetry.instances:
        labels = {_label(key): text for key, text in telemetry.pushed.resource(instance.id)}
        labels.update((name, instance.attributes.get(name, "")) for name in _INFO_LABELS)
        yield labels, 1


def _pushed(telemetry: ClientTelemetry) -> Iterator[Family]:
    """One family for each name. Where two clients push a counter and a gauge of one name, the first one counts."""
    found: dict[str, Family] = {}
    for instance in telemetry.instances:
        who = {name: instance.attributes.get(name, "") for name in (INSTANCE_ID, CLIENT_ID)}
        seen = set()
        for series, value in telemetry.pushed.of(instance.id):
            if _name(series) == _INFO:
                continue
            family = found.setdefault(_name(series), _family(series))
            labels = {_label(key): text for key, text in series.attributes} | who
            identity = (family.name, *sorted(labels.items()))
            if (family.kind == COUNTER) != series.is_counter or identity in seen:
                continue  # different names of a client may become one here
            seen.add(identity)
            assert isinstance(family.samples, list)
            family.samples.append(Sample("_total" if series.is_counter else "", labels, value))
    yield from found.values()


def _family(series: Series) -> Family:
    make = counter if series.is_counter else gauge
    return make(_name(series), f"{series.name} of clients.", [])


def _name(series: Series) -> str:
    name = _ILLEGAL.sub("_", series.name.removeprefix(_PREFIX))
    return f"kafka_client_{name.removesuffix('_total')}"


def _label(key: str) -> str:
    """A legal name of a label, which does not begin with `__`, as Prometheus' own do."""
    name = _ILLEGAL.sub("_", key).lstrip("_")
    return name if name and not name[0].isdigit() else f"attribute_{name}"
