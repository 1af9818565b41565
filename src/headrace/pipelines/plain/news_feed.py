"""The feeds of members, in plain Python."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from headrace.pipelines.site import SiteEvent


def feeds(events: Iterable[SiteEvent]) -> dict[str, list[dict[str, Any]]]:
    """The 20 newest posts of those whom each member follows in the end; members without posts are left out."""
    posts: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    follows: dict[tuple[str, str], tuple[int, str, bool]] = {}
    for event in events:
        value = event.value
        if event.topic == "site.posts":
            fields = {name: value[name] for name in ("time_ms", "id", "author", "text")}
            posts[value["author"]][value["id"]] = fields
        elif event.topic == "site.follows":
            pair = value["member"], value["author"]
            told = value["time_ms"], value["id"], value["is_following"]
            follows[pair] = max(told, follows.get(pair, told))
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (member, author), (_, _, is_following) in follows.items():
        if is_following:
            found[member] += posts[author].values()
    newest_first = {
        member: sorted(feed, key=lambda post: (post["time_ms"], post["id"])) for member, feed in found.items()
    }
    return {member: feed[::-1][:20] for member, feed in newest_first.items() if feed}
