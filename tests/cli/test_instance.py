"""`headrace instance` against a real broker, in this process: a command is a second of imports."""

import json
from collections.abc import Callable, Iterator

import pytest

from headrace.cli import app
from headrace.testing import Broker
from tests.eventually import eventually

pytestmark = pytest.mark.slow

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def headrace(broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command; its exit code, and what it printed."""
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = app.run(arguments)
        return code, *capsys.readouterr()

    return run


def test_instances_are_created_listed_described_altered_and_deleted(headrace: Run) -> None:
    def text(*arguments: str) -> str:
        code, out, errors = headrace("instance", *arguments)
        assert code == 0, errors
        return out

    limits = ("--bytes-in", "10MiB", "--bytes-out", "1.5GiB", "--capacity", "2TiB", "--retention-max", "7d")
    lists = ("--allow", "10.0.0.0/8", "--allow", "::1/128", "--deny", "10.9.0.0/16", "--admin", "alice")
    assert "would create instance cli" in text("create", "cli", "--no-listener", "--dry-run")
    made = json.loads(text("create", "cli", "--no-listener", *limits, *lists, "--json"))
    assert (made["bytes_in"], made["bytes_out"], made["capacity"]) == (10 << 20, 3 << 29, 2 << 40)
    assert (made["retention_ms_max"], made["port"], made["bootstrap"]) == (7 * 86_400_000, None, "")
    assert (made["allow"], made["deny"], made["admins"]) == (["10.0.0.0/8", "::1/128"], ["10.9.0.0/16"], ["alice"])
    [row] = [line.split() for line in text("list").splitlines() if line.startswith("cli")]
    assert row == ["cli", "active", "10MiB", "1536MiB", "2048GiB", "0", "0", "all", "-"]
    assert "altered instance cli: allow, bytes_in" in text("alter", "cli", "--bytes-in", "none", "--allow", "none")
    shown = json.loads(text("describe", "cli", "--json"))
    assert (shown["bytes_in"], shown["allow"], shown["deny"], shown["topics"]) == (None, [], ["10.9.0.0/16"], 0)
    text("alter", "cli", "--limit", "users=5", "--limit", "transactional-ids=none", "--principal", "CN=*,OU=cli")
    shown = json.loads(text("describe", "cli", "--json"))
    assert (shown["users_max"], shown["transactional_ids_max"], shown["acls_max"]) == (5, None, 10_000)
    assert shown["principals"] == ["CN=*,OU=cli"]
    assert ["deny", "10.9.0.0/16"] in [line.split() for line in text("describe", "cli").splitlines()]
    assert headrace("topic", "create", "cli.orders")[0] == 0
    code, _, errors = headrace("instance", "delete", "cli")
    assert (code, "has 1 topics, such as cli.orders" in errors) == (1, True)
    assert "would delete instance cli with 1 topics" in text("delete", "cli", "--with-data", "--dry-run")
    assert "deleted instance cli with 1 topics" in text("delete", "cli", "--with-data")
    assert json.loads(text("describe", "cli", "--json"))["state"] == "deleting"
    assert "altered instance cli: state" in text("alter", "cli", "--restore")
    assert json.loads(text("delete", "cli", "--with-data", "--grace", "0s", "--json"))["dry_run"] is False
    eventually(lambda: json.loads(text("list", "--json")) == [], "the end of the instance")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("create", "cli", "--bytes-in", "fast"), 2, "--bytes-in 'fast' is not a size such as"),
        (("create", "cli", "--capacity", "-1"), 2, "--capacity '-1' is not a size"),
        (("create", "cli", "--topics-max", "1.5"), 2, "--topics-max '1.5' is not a number"),
        (("create", "cli", "--limit", "topic=1"), 2, "--limit 'topic=1' is none of users, acls, quotas"),
        (("create", "cli", "--limit", "users=x"), 2, "--limit users 'x' is not a number"),
        (("create", "cli", "--brokers", "1,x"), 2, "--brokers 'x' is not a number"),
        (("create", "cli", "--retention-min", "1y"), 2, "--retention-min '1y' is not a duration"),
        (("create", "cli", "--port", "1", "--no-listener"), 2, "exclude each other"),
        (("create", "Cli"), 2, "an instance cannot be called 'Cli'"),
        (("create", "cli", "--allow", "10.0.0.1/8"), 2, "is not a network"),
        (("alter", "cli"), 2, "name what to change"),
        (("alter", "nobody", "--bytes-in", "5"), 1, "no instance called 'nobody'"),
        (("describe", "nobody"), 1, "no instance called 'nobody'"),
        (("delete", "nobody", "--grace", "soon"), 2, "--grace 'soon' is not a duration"),
    ],
)
def test_what_cannot_be_an_instance_is_refused(
    headrace: Run, arguments: tuple[str, ...], code: int, words: str
) -> None:
    found, _, errors = headrace("instance", *arguments)
    assert (found, words in errors) == (code, True), errors
