"""The pages of workers as one page that Prometheus reads."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from headrace.broker.workers.metrics_page import merged

TEXT = """# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{request="Fetch",client="a, \\"b\\" }"} 3.0
requests_total 5.0
# HELP memory Memory.
# TYPE memory gauge
memory{} 1.5
"""
OPEN = """# HELP requests Requests.
# TYPE requests counter
requests_total{request="Fetch"} 3.0
# HELP memory Memory.
# TYPE memory gauge
memory 1.5
# EOF
"""


def test_each_sample_has_the_label_of_its_worker() -> None:
    families = {each.name: each for each in parse_text(merged({0: TEXT, 1: TEXT}, {0: 1, 1: 4}, is_open_metrics=False))}
    requests = [(each.labels, each.value) for each in families["requests"].samples]
    assert requests == [
        ({"worker": number, **labels}, value)
        for number in ("0", "1")
        for labels, value in (({"request": "Fetch", "client": 'a, "b" }'}, 3.0), ({}, 5.0))
    ]
    assert [each.labels for each in families["memory"].samples] == [{"worker": "0"}, {"worker": "1"}]
    assert [each.value for each in families["headrace_worker_starts"].samples] == [1, 4]


def test_the_page_is_good_open_metrics_too() -> None:
    page = merged({0: OPEN, 1: OPEN}, {0: 1, 1: 1}, is_open_metrics=True)
    families = {each.name: each for each in parse_open_metrics(page)}  # type: ignore[no-untyped-call]
    assert families["requests"].type == "counter"
    assert {each.labels["worker"] for each in families["requests"].samples} == {"0", "1"}


def test_a_worker_that_does_not_answer_is_down() -> None:
    families = {each.name: each for each in parse_text(merged({1: TEXT}, {0: 3, 1: 1}, is_open_metrics=False))}
    assert {each.labels["worker"]: each.value for each in families["headrace_worker_up"].samples} == {"0": 0, "1": 1}
