"""The refusals are Apache Kafka's: each API at every version that both serve, for principals without a right, with each
single one, and with all but one that is denied, asked about what the principal may use, about what it may not, and
about both in one request. Principals come through every protocol of listeners.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from headrace.broker.handlers import all_modules
from headrace.protocol.apis import ApiKey
from tests.broker.conftest import PEER
from tests.rights.comparison import UNORDERED, Case, Refused, Shown, ask, cases
from tests.rights.requests import every_version
from tests.rights.secured import PRINCIPALS, PROTOCOLS, Secured, apache_kafka_3_9, both, protocol_of
from tests.rotation import day

pytestmark = PEER

_NOT_ASKED = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
"""They would change who asks, and the rules."""
_BROKERS = {each.API_KEY for each in all_modules() if each.DEMANDS and all(one.is_of_brokers for one in each.DEMANDS)}
"""Only other brokers may send these, and this broker is in no cluster."""
_AT_3_9 = {
    ApiKey.DESCRIBE_CONFIGS: 0,
    ApiKey.ALTER_CONFIGS: 0,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 0,
    ApiKey.DESCRIBE_GROUPS: 2,
}
"""Versions that are asked about no settings of groups, which Apache Kafka 3.9 on ZooKeeper does not have."""
_NOT_IN_3_9 = {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}
"""There they are advertised and not supported."""
_EACH_DAY = 6
"""Principals that are compared with Apache Kafka 3.9 in one run."""
_PRODUCE_SINCE = 3
"""Apache Kafka 4 advertises versions of Produce below and closes the connection."""


def is_meant(case: Case, ours: Refused, theirs: Refused) -> bool:
    """Whether a difference is deliberate."""
    key, _, _, what = case
    if what == "follower":  # this broker is in no cluster, so nobody may follow it; and see docs/rights.md
        return not ours if key is ApiKey.LIST_OFFSETS else not theirs
    if key in _BROKERS:
        return bool(ours)
    if key is ApiKey.ELECT_LEADERS:  # one error for each partition, and none for the whole request
        return theirs - ours == {("", "CLUSTER_AUTHORIZATION_FAILED")}
    if key is ApiKey.DELETE_TOPICS:  # as Apache Kafka 3.9: only DELETE on the topic counts, and nobody else learns more
        return not theirs - ours and {code for _, code in ours - theirs} == {"TOPIC_AUTHORIZATION_FAILED"}
    if key in (ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS, ApiKey.OFFSET_DELETE):
        return not theirs  # it asks for the group even if all topics are refused, and says that there is none
    if key is ApiKey.OFFSET_FETCH:  # the error is repeated for each partition, as versions 0 and 1 have it
        return not theirs - ours and {code for _, code in ours - theirs} == {"GROUP_AUTHORIZATION_FAILED"}
    return False


def are_shown_alike(key: ApiKey, ours: Shown, theirs: Shown) -> bool:
    """Whether clients show the same texts, in the same order."""
    if key is ApiKey.FETCH:  # partitions are in the order of the request; Apache Kafka puts the refused ones last
        return True
    if key in UNORDERED:
        return sorted(ours) == sorted(theirs)
    return ours == theirs


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Secured, Secured]]:
    directory: Path = tmp_path_factory.mktemp("secured")
    with both(directory) as pair:
        yield pair


def shared(brokers: tuple[Secured, Secured], *, newest: bool) -> list[tuple[ApiKey, int]]:
    """The versions that both serve."""
    ours, theirs = (each.versions for each in brokers)
    found = [
        (key, version)
        for key, version in every_version()
        if key not in _NOT_ASKED
        and version in ours.get(key, ())
        and version in theirs.get(key, ())
        and not (key is ApiKey.PRODUCE and version < _PRODUCE_SINCE)
    ]
    return list(dict(found).items()) if newest else found


def compare(
    brokers: tuple[Secured, Secured], questions: Iterable[Case], protocol: str | None = None, *, is_shown: bool = True
) -> int:
    """Asks both; fails with every difference that is not meant. Returns how many refusals there were.

    They are asked through listeners of `protocol`, or of one for each principal, which the day decides. `is_shown`:
    whether texts and order count.
    """
    ours, theirs = brokers
    refusals = 0
    different: Counter[str] = Counter()
    for case in questions:
        through = protocol or protocol_of(case[2])
        (own, own_shown), (kafkas, kafkas_shown) = ask(ours, case, through), ask(theirs, case, through)
        refusals += bool(own)
        where = f"{case[0].name} {case[1]} {case[3]} through {through}"
        if own != kafkas:
            if not is_meant(case, own, kafkas):
                different[f"{where}: {sorted(own)}, Apache Kafka {sorted(kafkas)}"] += 1
        elif own and is_shown and not are_shown_alike(case[0], own_shown, kafkas_shown):
            different[f"{where}: shows {own_shown}, Apache Kafka {kafkas_shown}"] += 1
    assert not different, "\n".join(f"{text} ({count} principals)" for text, count in different.items())
    return refusals


def test_a_principal_with_one_right_is_refused_as_by_apache_kafka(brokers: tuple[Secured, Secured]) -> None:
    """A quarter of them each day. In twelve days each comes through each protocol."""
    some = [each for each in PRINCIPALS if not each.startswith("but")][day() % 4 :: 4]
    assert compare(brokers, cases(shared(brokers, newest=True), some, is_whole=False)) > 250


@pytest.mark.soak
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_principal_is_refused_at_every_version_and_listener_as_by_apache_kafka(
    brokers: tuple[Secured, Secured], protocol: str
) -> None:
    assert compare(brokers, cases(shared(brokers, newest=False), PRINCIPALS, is_whole=True), protocol) > 10_000


def refusals_beside_3_9(directory: Path, principals: Sequence[str]) -> int:
    """Compares with Apache Kafka 3.9 and its AclAuthorizer. Returns how many refusals there were."""
    with both(directory, apache_kafka_3_9, principals) as brokers:
        versions = dict(each for each in shared(brokers, newest=True) if each[0] not in _BROKERS | _NOT_IN_3_9)
        versions |= _AT_3_9
        return compare(brokers, cases(versions.items(), principals, is_whole=False), is_shown=False)


def test_some_principals_are_refused_as_by_apache_kafka_3_9(tmp_path: Path) -> None:
    """Others each day: all of them in nine days."""
    first = day() * _EACH_DAY
    some = [PRINCIPALS[(first + number) % len(PRINCIPALS)] for number in range(_EACH_DAY)]
    assert refusals_beside_3_9(tmp_path, ["none", *some]) > 100


@pytest.mark.soak
def test_every_principal_is_refused_as_by_apache_kafka_3_9(tmp_path: Path) -> None:
    assert refusals_beside_3_9(tmp_path, PRINCIPALS) > 3000
