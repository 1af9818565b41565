"""`headrace acl`, in processes of its own, against a real broker."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.app import run
from tests.broker.acl_requests import AUTHORIZED
from tests.cli.conftest import Run
from tests.harness import HeadraceServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    started = HeadraceServer(tmp_path_factory.mktemp("acls") / "data", AUTHORIZED)
    started.start()
    yield started
    started.stop()


class Acl:
    """Runs `headrace acl` in processes of its own."""

    def __init__(self, bootstrap: str, home: Path) -> None:
        self._environment = {**os.environ, "HEADRACE_BOOTSTRAP": bootstrap, "HOME": str(home)}

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "headrace", "acl", *arguments]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)

    def __call__(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def listed(self, *arguments: str) -> list[tuple[str, ...]]:
        found: list[dict[str, str]] = json.loads(self("list", "--json", *arguments))
        return sorted(tuple(each.values()) for each in found)


@pytest.fixture
def acl(server: HeadraceServer, tmp_path: Path) -> Iterator[Acl]:
    made = Acl(server.bootstrap, tmp_path)
    yield made
    made("remove", "--all")


def test_rules_are_added_listed_and_removed(acl: Acl) -> None:
    assert acl("add", "--principal", "User:alice", "-o", "read", "--topic", "t", "--dry-run").splitlines() == [
        "would add 1 rule",
        "       PRINCIPAL   HOST  OPERATION  RESOURCE  NAME",
        "Allow  User:alice  *     Read       topic     t",
    ]
    assert acl.listed() == []
    acl("add", "--principal", "User:alice", "--operation", "read", "--operation", "DESCRIBE_CONFIGS", "--topic", "t")
    acl("add", "--principal", "User:*", "-o", "all", "--topic", "pre", "--prefixed", "--deny", "--host", "10.0.0.7")
    assert acl.listed() == [
        ("Topic", "pre", "Prefixed", "User:*", "10.0.0.7", "All", "Deny"),
        ("Topic", "t", "Literal", "User:alice", "*", "DescribeConfigs", "Allow"),
        ("Topic", "t", "Literal", "User:alice", "*", "Read", "Allow"),
    ]
    assert len(acl.listed("--topic", "prefix")) == 0
    assert len(acl.listed("--topic", "prefix", "--match")) == 1
    assert len(acl.listed("--principal", "User:alice", "--principal", "User:bob")) == 2
    assert "would remove 2 rules" in acl("remove", "--topic", "t", "--dry-run")
    removed: dict[str, Any] = json.loads(acl("remove", "--topic", "t", "-o", "Read", "--json"))
    assert ([each["operation"] for each in removed["rules"]], removed["dry_run"]) == (["Read"], False)
    assert "removed 1 rule" in acl("remove", "--principal", "User:alice", "--allow")
    assert "removed 1 rule" in acl("remove", "--deny")
    assert acl.listed() == []


def test_a_producer_and_a_consumer_get_what_they_need(acl: Acl) -> None:
    acl("add", "--producer", "--principal", "User:p", "--topic", "t", "--transactional-id", "x")
    acl("add", "--consumer", "--principal", "User:c", "--topic", "t", "--group", "g")
    assert {(resource, who, what) for resource, _, _, who, _, what, _ in acl.listed()} == {
        ("Topic", "User:p", "Write"),
        ("Topic", "User:p", "Describe"),
        ("Topic", "User:p", "Create"),
        ("TransactionalId", "User:p", "Write"),
        ("TransactionalId", "User:p", "Describe"),
        ("Topic", "User:c", "Read"),
        ("Topic", "User:c", "Describe"),
        ("Group", "User:c", "Read"),
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "-o", "Read", "--topic", "t"), "name a --principal"),
        (("add", "--principal", "alice", "-o", "Read", "--topic", "t"), "did you mean 'User:alice'?"),
        (("add", "--principal", "User:a", "-o", "Read"), "name a resource"),
        (("add", "--principal", "User:a", "--topic", "t"), "name an --operation"),
        (("add", "--principal", "User:a", "-o", "Fly", "--topic", "t"), "--operation 'Fly' is not one of All, Read"),
        (
            ("add", "--principal", "User:a", "-o", "Write", "--group", "g"),
            "Write is no operation on a group: All, Read",
        ),
        (("add", "--principal", "User:a", "-o", "All", "--topic", ""), "the name of a topic is empty"),
        (("add", "--principal", "User:a", "-o", "All", "--topic", "*", "--prefixed"), "exclude each other"),
        (("add", "--principal", "User:a", "-o", "All", "--cluster", "--prefixed"), "exclude each other"),
        (("add", "--principal", "User:a", "--consumer", "--topic", "t"), "--consumer needs a --topic and a --group"),
        (("add", "--principal", "User:a", "--producer", "--group", "g"), "--producer needs a --topic"),
        (("remove",), "name the rules to remove, or give --all"),
        (("remove", "--allow", "--deny"), "exclude each other"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_say_instead(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", "127.0.0.1:1")
    assert run(["acl", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_broker_without_an_authorizer_says_so(headrace: Run) -> None:
    done = headrace("acl", "list")
    assert (done.returncode, done.stderr) == (
        1,
        b"headrace: SECURITY_DISABLED: No Authorizer is configured on the broker; "
        b"set authorizer.class.name on the brokers, see `headrace settings`\n",
    )


def test_the_first_rule_is_made_before_anything_runs(tmp_path: Path) -> None:
    """With an authorizer and no super user, nobody could make it over the wire."""
    data = tmp_path / "data"
    acl = Acl("127.0.0.1:1", tmp_path)
    anonymous = ("--principal", "User:ANONYMOUS", "--cluster")
    acl("add", *anonymous, "-o", "alter", "-o", "describe", "--data", str(data))
    acl(
        "add",
        "--principal",
        "User:alice",
        "-o",
        "write",
        "--topic",
        "a",
        "--topic",
        "b",
        "--prefixed",
        "--data",
        str(data),
    )
    removed = acl("remove", "--principal", "User:alice", "--topic", "b", "--prefixed", "--data", str(data))
    assert removed.startswith("removed 1 rule")
    before = acl.listed("--data", str(data))
    assert len(before) == 3
    server = HeadraceServer(data, {**AUTHORIZED, "super.users": "User:nobody"})
    server.start()
    try:
        refused = acl.run("list", "--data", str(data))
        assert (refused.returncode, "a broker runs on" in refused.stderr) == (1, True), refused.stderr
        over_the_wire = Acl(server.bootstrap, tmp_path)
        assert over_the_wire.listed() == before
        over_the_wire("add", "--principal", "User:bob", "-o", "read", "--topic", "c")
    finally:
        server.stop()
    assert len(acl.listed("--data", str(data))) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--zookeeper", "h:1", "--data", "d"], "--zookeeper and --data exclude each other"),
        (["--zookeeper-config", "f"], "--zookeeper-config needs --zookeeper"),
    ],
)
def test_the_places_of_rules_exclude_each_other(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["acl", "list", *arguments]) != 0
    assert said in capsys.readouterr().err


def test_a_rule_that_apache_kafka_could_not_read_is_not_written_to_zookeeper(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rule = ["--principal", "User:a", "-o", "twophasecommit", "--transactional-id", "x", "--zookeeper", "127.0.0.1:1"]
    assert run(["acl", "add", *rule]) != 0
    assert "use All" in capsys.readouterr().err
