"""The committed result of the grid, from which README's table is made, is about the cases and clients there are now."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import report
from tests.conformance.cases import CASES
from tests.conformance.clients import CLIENTS
from tests.conformance.model import Client
from tests.conformance.old.old_cases import OLD_CASES
from tests.conformance.old.old_clients import OLD_CLIENTS
from tests.conformance.programs import HERE
from tests.conformance.with_programs import PROGRAMS
from tests.peers import kafka

GRID = json.loads(Path(__file__).with_name("grid.json").read_text())


PARTS = [
    pytest.param(GRID, CASES, CLIENTS, id="clients"),
    pytest.param(GRID["old"], OLD_CASES, OLD_CLIENTS, id="old clients"),
]


@pytest.mark.parametrize(("grid", "cases", "clients"), PARTS)
def test_the_committed_grid_has_todays_cases_clients_and_gaps(
    grid: dict[str, Any], cases: dict[str, str], clients: Sequence[Client]
) -> None:
    assert grid["cases"] == cases
    gaps = {name: found["gaps"] for name, found in grid["clients"].items()}
    assert gaps == {client.name: dict(client.gaps) for client in clients}


@pytest.mark.parametrize(("part", "client"), [(part, name) for part in (GRID, GRID["old"]) for name in part["clients"]])
def test_every_cell_of_the_committed_grid_passed_or_is_a_gap(part: dict[str, Any], client: str) -> None:
    found = part["clients"][client]
    assert set(found["outcomes"]) | set(found["gaps"]) == set(part["cases"])
    assert not set(found["outcomes"]) & set(found["gaps"])
    assert set(found["outcomes"].values()) == {"passed"}


def test_the_versions_of_the_programs_are_those_that_are_built() -> None:
    modules = (HERE / "go" / "go.mod").read_text()
    packages = json.loads((HERE / "js" / "package.json").read_text())["dependencies"]
    built = {
        "franz-go": re.findall(r"twmb/franz-go v(\S+)", modules)[0],
        "sarama": re.findall(r"IBM/sarama v(\S+)", modules)[0],
        "kafkajs": packages["kafkajs"],
    }
    assert {each.name: each.version() for each in PROGRAMS if each.name in built} == built


def _skipped(row: str | None, *markers: str) -> pytest.TestReport:
    properties = [("grid_row", row)] if row else []
    where = ("tests/test_of_a_peer.py", 1, "test")
    keywords = dict.fromkeys(markers, 1)
    return pytest.TestReport(
        "test", where, keywords, "skipped", "Skipped: it is not here", "setup", user_properties=properties
    )


@pytest.mark.parametrize("markers", [(), ("slow", "peer")])
def test_a_cell_may_be_skipped_while_its_client_is_missing(
    markers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = CLIENTS[0]
    monkeypatch.setattr(type(client), "missing", lambda self: "it is not here")
    monkeypatch.setattr(kafka, "missing_tools", lambda: None)
    assert not report.is_wrong_skip(_skipped(client.name, *markers))
    monkeypatch.setattr(type(client), "missing", lambda self: None)
    assert report.is_wrong_skip(_skipped(client.name, *markers))


def test_another_peer_may_be_skipped_while_java_or_maven_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "missing_tools", lambda: "needs Maven")
    assert not report.is_wrong_skip(_skipped(None, "peer"))
    monkeypatch.setattr(kafka, "missing_tools", lambda: None)
    assert report.is_wrong_skip(_skipped(None, "peer"))
    assert not report.is_wrong_skip(_skipped(None))
