"""`headrace quota`, in processes of its own, against a real broker."""

import json

import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.slow


def test_quotas_are_set_listed_described_and_removed(headrace: Run) -> None:
    def text(*arguments: str) -> str:
        done = headrace("quota", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    text("set", "producer_byte_rate=1024", "request_percentage=12.5", "--user", "cli user")
    text("set", "consumer_byte_rate=99", "--user", "cli user", "--client-id-default")
    text("set", "connection_creation_rate=5", "--ip", "10.1.2.3")
    assert "would change" in text("set", "producer_byte_rate=1", "--user", "cli user", "--dry-run")
    found = json.loads(text("describe", "--user", "cli user", "--json"))
    assert found == {
        "entity": {"user": "cli user"},
        "quotas": {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
    }
    listed = [line.split() for line in text("list").splitlines()]
    assert ["user", "cli", "user,", "default", "client-id", "consumer_byte_rate", "99"] in listed
    assert ["ip", "10.1.2.3", "connection_creation_rate", "5"] in listed
    text("remove", "producer_byte_rate", "--user", "cli user")
    assert "request_percentage" in text("describe", "--user", "cli user")
    for entity in (["--user", "cli user"], ["--user", "cli user", "--client-id-default"], ["--ip", "10.1.2.3"]):
        text("remove", *entity)
    assert json.loads(text("list", "--json") or "[]") == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("set", "producer_byte_rate=1"), 2),
        (("set", "producer_byte_rate=1", "--ip", "10.0.0.1", "--user", "u"), 2),
        (("set", "producer_byte_rate=1", "--user", "u", "--user-default"), 2),
        (("set", "producer_byte_rate=fast", "--user", "u"), 2),
        (("set", "producer_byte_rate=0", "--user", "u"), 1),
        (("set", "no_such_quota=1", "--user", "u"), 1),
    ],
)
def test_what_cannot_be_a_quota_is_refused(headrace: Run, arguments: tuple[str, ...], code: int) -> None:
    done = headrace("quota", *arguments)
    assert (done.returncode, bool(done.stderr)) == (code, True)
