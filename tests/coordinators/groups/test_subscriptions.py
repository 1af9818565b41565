"""The topics to which the members of a group subscribe, by name and by regular expression."""

import pytest

from headrace.coordinators.groups.modern.subscriptions import Subscriptions


@pytest.mark.parametrize(
    ("topics", "has_any"),
    [(set(), False), ({"c"}, False), ({"a"}, True), ({"b"}, True), ({"c", "d", "e", "b"}, True), ({"old"}, False)],
)
def test_tells_whether_one_of_some_topics_is_subscribed(topics: set[str], has_any: bool) -> None:
    subscriptions = Subscriptions()
    subscriptions.replace_names((), ("a", "old"))
    subscriptions.replace_names(("old",), ())
    subscriptions.replace_matches((), ("a", "b"))
    assert subscriptions.has_any(topics) is has_any
    assert not Subscriptions().has_any(topics)
