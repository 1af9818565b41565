"""Each setting that Apache Kafka changes while a broker runs: dynamic here too, in the same mode, or explained.

`apache_kafka_dynamic.txt` has the documented update modes of 3.9 and 4.3, as Apache Kafka itself prints them.
"""

import re
import subprocess
from pathlib import Path

import pytest

from headrace.config.dynamic import DYNAMIC, WITHOUT_EFFECT, check_entity, check_names
from headrace.config.fixed import FIXED
from headrace.errors import InvalidRequest
from tests.peers import kafka

HERE = Path(__file__).parent
RELEASES = {"3.9": "3.9.2", "4.3": "4.3.1"}
PER_BROKER = "per-broker"

OURS_ALONE = {
    "headrace.log.flush.acks": "a setting of headrace",
    "headrace.log.preallocate.room": "a setting of headrace",
    "log.message.format.version": "message formats before 2 are written here; Apache Kafka 4 has only 2",
}
"""Dynamic settings that are dynamic in neither release, each with the reason."""
OF_QUOTAS = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
"""Dynamic in 3.9 as well, which lists its quotas of replication apart."""


def listed(release: str) -> dict[str, str]:
    """The update mode of each dynamic setting of a release, from the list beside this file."""
    rows = [line.split("\t") for line in (HERE / "apache_kafka_dynamic.txt").read_text().splitlines()[1:]]
    column = list(RELEASES).index(release) + 1
    return {row[0]: row[column] for row in rows if row[column] != "-"}


@pytest.mark.parametrize("release", RELEASES)
def test_each_dynamic_setting_of_apache_kafka_changes_here_or_is_explained(release: str) -> None:
    theirs = listed(release)
    assert len(theirs) > 80
    groups = [DYNAMIC.keys(), WITHOUT_EFFECT, FIXED.keys()]
    assert {name: [name in group for group in groups].count(True) for name in theirs} == dict.fromkeys(theirs, 1)


@pytest.mark.parametrize("release", RELEASES)
def test_a_setting_is_refused_for_all_brokers_where_apache_kafka_refuses_it(release: str) -> None:
    def is_for_all(name: str) -> bool:
        try:
            check_entity([name])
        except InvalidRequest:
            return False
        return True

    changes = {name: mode for name, mode in listed(release).items() if name not in FIXED}
    assert [name for name, mode in changes.items() if is_for_all(name) != (mode != PER_BROKER)] == []


def test_every_exception_is_one_of_apache_kafkas_settings() -> None:
    theirs = listed("3.9").keys() | listed("4.3").keys()
    assert sorted((FIXED.keys() | WITHOUT_EFFECT) - theirs) == []
    assert DYNAMIC.keys() - theirs == OURS_ALONE.keys()
    assert listed("4.3").keys() - listed("3.9").keys() >= OF_QUOTAS


@pytest.mark.parametrize("name", sorted(FIXED))
def test_a_change_of_a_fixed_setting_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(f"{name}: {FIXED[name]}")):
        check_names(["log.retention.ms", name])


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or "")
@pytest.mark.parametrize("release", RELEASES)
def test_the_list_of_dynamic_settings_is_that_of_apache_kafka_itself(release: str) -> None:
    command = ["java", "-cp", f"{kafka.jars(RELEASES[release])}/*", str(HERE / "DynamicNames.java")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line) == listed(release)
