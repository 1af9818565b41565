"""Room that entrances share, so that a flood through one of them takes its own places, and not those of the others.

    FairRoom     the places of an entrance's clients, the oldest first. When there is no room left, the oldest of the
                 entrance that takes most of it has to go
    FairQueue    work for a thread: the entrances take turns

An entrance is a listener, or the port of an instance. Clients of instances that share a port share its places, too.
"""

from collections import Counter, deque
from collections.abc import Iterator
from queue import SimpleQueue
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class FairRoom(Generic[T]):
    """The places that are taken, by entrance. One thread."""

    def __init__(self) -> None:
        self._all: dict[T, tuple[str, int]] = {}  # with entrance and size, the oldest first
        self._of: dict[str, dict[T, None]] = {}  # of each entrance, the oldest first
        self._sizes: Counter[str] = Counter()
        self.size = 0
        """Of all; without sizes of their own, their number."""

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, one: T) -> bool:
        return one in self._all

    def __iter__(self) -> Iterator[T]:
        return iter(self._all)

    def add(self, one: T, entrance: str, size: int = 1) -> None:
        """Adds one that is not in the room."""
        self._all[one] = entrance, size
        self._of.setdefault(entrance, {})[one] = None
        self._sizes[entrance] += size
        self.size += size

    def remove(self, one: T) -> bool:
        """Removes one; returns whether it was in the room."""
        entrance, size = self._all.pop(one, ("", 0))
        if not size:
            return False
        self.size -= size
        others = self._of[entrance]
        del others[one]
        if others:
            self._sizes[entrance] -= size
        else:
            del self._of[entrance], self._sizes[entrance]
        return True

    @property
    def oldest(self) -> T:
        """The one that waits longest, of one or more."""
        return next(iter(self._all))

    @property
    def excess(self) -> T:
        """The oldest of the entrance that takes most of the room, of one or more."""
        sizes = self._sizes
        return next(iter(self._of[max(sizes, key=sizes.__getitem__)]))


class FairQueue(Generic[T]):
    """Items for one thread, from any."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._of: dict[str, deque[T]] = {}  # of each entrance; the first is next
        self._tokens: SimpleQueue[bool] = SimpleQueue()  # one for each item; False at the end

    def put(self, item: T, entrance: str) -> None:
        """Adds an item."""
        with self._lock:
            self._of.setdefault(entrance, deque()).append(item)
        self._tokens.put(True)

    def end(self) -> None:
        """`get` returns None once it has returned what was put before."""
        self._tokens.put(False)

    def get(self) -> T | None:
        """Waits for an item; None at the end."""
        if not self._tokens.get():
            return None
        with self._lock:
            entrance = next(iter(self._of))
            items = self._of.pop(entrance)
            item = items.popleft()
            if items:
                self._of[entrance] = items  # behind the others
            return item

    def __len__(self) -> int:
        """How many items wait; about, while others put and get."""
        return self._tokens.qsize()
