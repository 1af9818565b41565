"""What `make bench` records: medians and ratios of pairs, the tables of docs/performance.md, and their chart."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import pytest
from performance_page import goals_table, section

from benchmarks import chart
from benchmarks.paired import is_ratio, number, ratio_to, shown, summarise
from benchmarks.recorded import GOALS, RECORDED, RESULTS, ROOT, file_of, stored


class Round(NamedTuple):
    requests_per_s: float
    p99_ms: float


TO = ratio_to("Apache Kafka")
ROUNDS = {
    "headrace": [Round(30_000, 1.0), Round(10_000, 4.0), Round(20_000, 2.0)],
    "floor": [Round(40_000, 1.0), Round(20_000, 2.0), Round(20_000, 2.0)],
    "Apache Kafka": [Round(10_000, 4.0), Round(10_000, 8.0), Round(5_000, 8.0)],
}


def recorded() -> dict[str, Any]:
    """A run as benchmarks/run.py stores it."""
    return {
        "benchmark": "broker/small_requests",
        "command": "python benchmarks/broker/small_requests.py",
        "day": "2026-11-27",
        "machine": "2 cores",
        "load": [0.5, 2.0],
        "versions": {"headrace": "0.1.0", "Apache Kafka": "4.3.1"},
        "results": {f"{count} connection{'s' * (count > 1)}": summarise(ROUNDS) for count in (10, 1, 50, 500)},
    }


def test_a_ratio_is_the_median_of_pairs_and_not_of_medians() -> None:
    summary = summarise(ROUNDS)
    assert summary["headrace"]["requests_per_s"] == {"median": 20_000, "least": 10_000, "most": 30_000}
    assert summary[TO]["requests_per_s"] == {"median": 3.0, "least": 1.0, "most": 4.0}
    assert summary[TO]["p99_ms"] == {"median": 0.25, "least": 0.25, "most": 0.5}


def test_ratios_of_two_other_sides_are_there_if_both_were_measured() -> None:
    summary = summarise(ROUNDS, [("floor", "Apache Kafka"), ("floor", "nobody")])
    assert [key for key in summary if is_ratio(key)] == ["to floor", TO, "floor to Apache Kafka"]
    assert summary["floor to Apache Kafka"]["requests_per_s"] == {"median": 4.0, "least": 2.0, "most": 4.0}


def test_a_goal_of_a_side_that_was_not_measured_then_has_an_earlier_figure() -> None:
    run = recorded()
    del run["results"]["10 connections"][ratio_to("floor")]
    (row,) = [each for each in goals_table({"small_requests": run}) if "floor in C, 10 connections" in each]
    assert row.endswith("| an earlier run, by hand |")


def test_one_side_alone_has_no_ratio() -> None:
    assert list(summarise({"headrace": ROUNDS["headrace"]})) == ["headrace"]


def test_numbers_have_three_digits_that_count() -> None:
    assert [number(each) for each in (20_000, 123.4, 12.34, 1.234, 0.0123)] == [
        "20,000",
        "123",
        "12.3",
        "1.23",
        "0.012",
    ]
    assert shown({"median": 2, "least": 1, "most": 30}) == "2.00 (1.00–30.0)"


def test_the_page_has_medians_spread_command_machine_load_and_versions() -> None:
    text = "\n".join(section("Small requests", recorded()))
    assert "### Small requests" in text
    assert "| | | requests/s | p99, ms |" in text
    assert "| 10 connections | headrace | 20,000 (10,000–30,000) | 2.00 (1.00–4.00) |" in text
    assert "|  | to Apache Kafka | **3.00 ×** (1.00–4.00) | **0.25 ×** (0.25–0.50) |" in text
    for part in ("python benchmarks/broker/small_requests.py", "2026-11-27", "2 cores", "0.5 before", "4.3.1"):
        assert part in text


def test_a_goal_has_what_was_recorded_or_says_that_it_was_not() -> None:
    small = [goal for goal in GOALS if goal.stem == "small_requests" and goal.case == "10 connections"]
    rows = list(goals_table({"small_requests": recorded()}))
    (row,) = [each for each in rows if small[0].work in each]
    assert "rate ≥ 1.50 ×, p99 ≤ 0.50 × | rate **3.00 ×**, p99 **0.25 ×** | 2026-11-27, load 0.5 |" in row
    missed = recorded()
    missed["results"]["10 connections"][TO]["p99_ms"]["median"] = 0.51
    (row,) = [each for each in goals_table({"small_requests": missed}) if small[0].work in each]
    assert "p99 0.51 × (missed)" in row
    assert sum("an earlier run, by hand" in each for each in rows) == len(GOALS) - 8


def test_each_goal_is_of_a_benchmark_that_is_recorded() -> None:
    assert {goal.stem for goal in GOALS} == set(RECORDED)
    for recorded_as in RECORDED.values():
        assert (ROOT / "benchmarks" / f"{recorded_as.benchmark}.py").exists()
    for goal in GOALS:
        assert goal.before or file_of(goal.stem).exists(), f"{goal.work}: nothing was ever reached"
    for stem, run in stored().items():
        for goal in (each for each in GOALS if each.stem == stem):
            spreads = run["results"][goal.case].get(goal.side)
            assert goal.before if spreads is None else {each.figure for each in goal.bounds} <= spreads.keys()


def test_all_results_are_of_a_benchmark_that_is_recorded() -> None:
    assert {each.stem for each in RESULTS.glob("*.json")} <= set(RECORDED)


@pytest.mark.slow
def test_the_chart_has_each_ratio_and_is_the_same_for_the_same_results(tmp_path: Path) -> None:
    once, again = tmp_path / "once.svg", tmp_path / "again.svg"
    for each in (once, again):
        chart.draw({"Small requests": recorded()}, each)
    drawn = once.read_text()
    assert drawn == again.read_text()
    assert "Small requests, 10 connections: requests per s" in drawn
    assert "3.00 ×" in drawn
