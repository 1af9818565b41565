"""The removal of the rules of one pattern that match any of many filters.

Entries and filters are looked up by principal, and filters without a choice as the entries that they name: thousands of
filters and thousands of rules of one pattern are compared in a time that grows with their sum.
"""

from collections.abc import Iterator, Sequence

from headrace.security.access import Operation
from headrace.security.acls.filters import EntryFilter
from headrace.security.acls.model import Entry, Permission


class Removal:
    """Decides which entries of a pattern are removed, and remembers them."""

    def __init__(self) -> None:
        self._named: set[Entry] = set()
        self._filters: dict[str | None, dict[EntryFilter, None]] = {}
        """The filters that leave a choice, by principal; None for every principal."""
        self._removed: dict[str, list[Entry]] = {}

    def add(self, wanted: EntryFilter) -> int:
        """Adds a filter. Returns how many filters that leave a choice there are now for its principal."""
        named = _named(wanted)
        if named is not None:
            self._named.add(named)
            return 0
        same = self._filters.setdefault(wanted.principal, {})
        same[wanted] = None
        return len(same)

    def decide(self, before: Sequence[Entry]) -> Sequence[Entry]:
        """The entries that stay."""
        self._removed = {}
        stay = []
        for each in before:
            if each in self._named or any(wanted.accepts(each) for wanted in self._for(each.principal)):
                self._removed.setdefault(each.principal, []).append(each)
            else:
                stay.append(each)
        return stay

    def removed(self, wanted: EntryFilter = EntryFilter()) -> Iterator[Entry]:  # noqa: B008 - it cannot be changed
        """The entries that were removed and match a filter."""
        if wanted.principal is None:
            found = [each for entries in self._removed.values() for each in entries]
        else:
            found = self._removed.get(wanted.principal, [])
        return (each for each in found if wanted.accepts(each))

    def _for(self, principal: str) -> Iterator[EntryFilter]:
        for each in (principal, None):
            yield from self._filters.get(each, ())


def _named(wanted: EntryFilter) -> Entry | None:
    """The only entry that a filter matches; None if it leaves a choice."""
    principal, host, operation, permission = wanted
    if principal is None or host is None or operation is Operation.ANY or permission is Permission.ANY:
        return None
    return Entry(principal, host, operation, permission)
