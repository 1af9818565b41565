"""The table of share sessions."""

from headrace.broker.share.share_sessions import ShareSessionCache


def test_a_connection_that_goes_through_many_groups_leaves_none_behind() -> None:
    """Each group that a connection has forgotten is told once, unless another connection has a session of it."""
    cache, count = ShareSessionCache(1000), 100
    other = cache.open("group-0", "other", (), "other connection")
    for number in range(count):
        cache.end(cache.open(f"group-{number}", "member", (), "connection"))
    left = [*cache.left(), *cache.left(), *cache.closed("connection")]
    assert sorted(left) == sorted(f"group-{number}" for number in range(1, count))
    cache.end(other)
    assert cache.closed("other connection") == ["group-0"]
