"""The pages that are made from the code are as the code is: a command, setting or API key without its line fails."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from apache_kafka_apis import APACHE_KAFKA, NOT_SERVED

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_reference_pages_are_what_the_code_says_now() -> None:
    command = [sys.executable, "scripts/reference_pages.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_setting_has_its_line() -> None:
    from headrace.config import BROKER_SETTINGS, TOPIC_SETTINGS

    page = (ROOT / "docs" / "settings.md").read_text()
    assert [name for name in (*BROKER_SETTINGS, *TOPIC_SETTINGS) if f"`{name}`" not in page] == []


def test_every_api_key_has_its_line() -> None:
    from headrace.broker.handlers import all_modules

    page = (ROOT / "docs" / "apis.md").read_text()
    assert [module.API_KEY for module in all_modules() if f"\n| {int(module.API_KEY)} |" not in page] == []


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{each.name}" for each in ROOT.glob("docs/*.md"))]
)
def test_every_link_to_a_file_leads_to_one(page: str) -> None:
    text = (ROOT / page).read_text()
    targets = [part.partition(")")[0] for part in text.split("](")[1:]]
    local = [each.partition("#")[0] for each in targets if "://" not in each and not each.startswith("#")]
    assert [each for each in local if not ((ROOT / page).parent / each).exists()] == []


@pytest.mark.parametrize(("release", "number"), [("4.3.1", 0), ("3.9.2", 1)])
def test_every_version_of_apache_kafka_is_served_but_those_of_krafts_own_apis(release: str, number: int) -> None:
    """That the table is what brokers of both releases say, their tests ask them."""
    from headrace.broker.handlers import all_modules

    ours = {module.API_KEY: module.VERSIONS for module in all_modules()}
    theirs = {key: each[number] for key, each in APACHE_KAFKA.items() if each[number] is not None}
    missing = {
        (key, version)
        for key, versions in theirs.items()
        for version in versions or ()
        if version not in ours.get(key, ())
    }
    assert {key for key, _ in missing} == NOT_SERVED.keys() & theirs.keys(), release
    assert NOT_SERVED.keys() <= {58, 80, 81}, "Envelope, AddRaftVoter, RemoveRaftVoter"
