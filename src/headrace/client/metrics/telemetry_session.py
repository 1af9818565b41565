"""What a client pushes next, and when: the state of KIP-714 on the client's side. Pure.

    ask ─▶ subscription ─▶ push after the interval ─▶ push ─▶ ...
     ▲                          │ the subscription has changed, or asks for nothing
     └──────────────────────────┘

The first push comes after half the interval to one and a half, so that clients that started together do not push
together. Source: Kafka's `ClientTelemetryReporter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from headrace.client.metrics.otlp import Point, metrics_data
from headrace.client.metrics.registry import GroupName, Resource
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.records.codecs.compression import Codec, compress

PREFIX = "org.apache.kafka."
RETRY_MS = 30_000
"""When to ask again after an error that says nothing better."""
_ASK_ANEW = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_GIVE_UP = (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION)

Values = Iterable[tuple[GroupName, str, float]]
"""(group, name, value), as of `Registry.points`."""


class _Counted(NamedTuple):
    """A sum at the last push that a broker took."""

    value: float
    at_ns: int


class TelemetrySession:
    """The subscription of one client, and what it has pushed. Times are in milliseconds, of any clock."""

    def __init__(self, resource: Resource, draw: Callable[[], float], began_ns: int) -> None:
        """`resource` gives attributes of the client. `draw` gives 0 to 1 by chance. `began_ns`: when sums began."""
        self.is_over: bool = False
        """Whether the brokers want nothing of this client any more."""
        self._resource = resource
        self._draw = draw
        self._began_ns = began_ns
        self._wanted: m.GetTelemetrySubscriptionsResponse | None = None
        self._id = bytes(16)
        self._due_ms = 0.0
        self._sums: dict[tuple[GroupName, str], _Counted] = {}
        self._offered: dict[tuple[GroupName, str], _Counted] = {}

    def wait_ms(self, now_ms: float) -> float:
        """How long to wait for the next request."""
        return max(0.0, self._due_ms - now_ms)

    def request(
        self, values: Values, now_ns: int, *, terminating: bool = False
    ) -> m.GetTelemetrySubscriptionsRequest | m.PushTelemetryRequest | None:
        """The next request; None if nothing is to be sent: a client that ends asks for no subscription."""
        wanted = self._wanted
        if wanted is None or not wanted.requested_metrics:
            return None if terminating else m.GetTelemetrySubscriptionsRequest(client_instance_id=self._id)
        points = self._points(values, wanted, now_ns)
        payload = metrics_data(points, self._attributes(), now_ns, is_delta=wanted.delta_temporality) if points else b""
        codec = _codec(wanted.accepted_compression_types)
        return m.PushTelemetryRequest(
            client_instance_id=self._id,
            subscription_id=wanted.subscription_id,
            terminating=terminating,
            compression_type=int(codec),
            metrics=compress(codec, payload) if payload else b"",
        )

    def subscribed(self, answer: m.GetTelemetrySubscriptionsResponse, now_ms: float) -> None:
        """A broker says what it wants."""
        if answer.error_code:
            self._refused(answer.error_code, now_ms)
            return
        self._id = answer.client_instance_id
        self._wanted = answer
        share = 0.5 + self._draw() if answer.requested_metrics else 1.0
        self._due_ms = now_ms + answer.push_interval_ms * share

    def pushed(self, code: int, now_ms: float) -> None:
        """A broker has answered a push."""
        if code:
            self._refused(code, now_ms)
            return
        self._sums.update(self._offered)
        self._due_ms = now_ms + self._interval_ms

    def unanswered(self, now_ms: float) -> None:
        """No broker could be asked. Another one may know nothing of the subscription, and says so."""
        self._due_ms = now_ms + self._interval_ms

    def _attributes(self) -> dict[str, str]:
        return {name: text for name, text in self._resource().items() if text}

    @property
    def _interval_ms(self) -> int:
        return RETRY_MS if self._wanted is None else self._wanted.push_interval_ms

    def _refused(self, code: int, now_ms: float) -> None:
        if code in _GIVE_UP:
            self.is_over = True
        elif code in _ASK_ANEW:
            self._wanted = None
            self._due_ms = now_ms
        else:  # too large, or too early
            self._due_ms = now_ms + self._interval_ms

    def _points(self, values: Values, wanted: m.GetTelemetrySubscriptionsResponse, now_ns: int) -> list[Point]:
        prefixes = tuple("" if each == "*" else each for each in wanted.requested_metrics)
        points = []
        self._offered = {}
        for group, name, value in values:
            known = telemetry_name(group.group, name)
            if value != value or not known.startswith(prefixes):
                continue  # not a number: nothing was measured
            attributes = {group.tag.replace("-", "_"): group.value} if group.tag else {}
            is_sum = name.endswith("-total")
            before = _Counted(0.0, self._began_ns)
            if is_sum and wanted.delta_temporality:
                before = self._sums.get((group, name), before)
                self._offered[group, name] = _Counted(value, now_ns)
            points.append(Point(known, attributes, value - before.value, is_sum, before.at_ns))
        return points


def telemetry_name(group: str, name: str) -> str:
    """The name of a metric in subscriptions and on brokers' pages: org.apache.kafka.producer.record.send.total."""
    return f"{PREFIX}{group.removesuffix('-metrics')}.{name}".replace("-", ".")


def _codec(accepted: Iterable[int]) -> Codec:
    known = {int(codec): codec for codec in Codec}
    return next((known[each] for each in accepted if each in known), Codec.NONE)
