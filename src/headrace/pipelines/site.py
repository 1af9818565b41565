"""A simulated site: the events of its members, of those who abuse it, and of its servers, in order of arrival.

    topic          key      fields of the JSON value, beside `id` and `time_ms`
    site.members   member   member, country                          one for each, before all else
    site.views     member   member, ip, path, items                  the items that the page showed
    site.searches  member   member, ip, text, items
    site.clicks    member   member, item
    site.follows   author   member, author, is_following             false: the member no longer follows the author
    site.posts     author   author, text
    site.logins    ip       ip, member, is_ok
    site.metrics   server   server, service, duration_ms, is_error   one for each request that a service answered
    site.logs      server   server, service, level, line

`time_ms` is when an event happened, in milliseconds since 1970; the record's timestamp is when it arrived. Of all
events, 2 % arrive up to 20 s late, 0.3 % a minute and more (phones that had no network), and 1 % arrive twice, with one
`id`.

The same seed makes the same events. Abuse (`abuse.py`) and incidents of servers are on top of the ordinary `rate`.
"""

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, Final, NamedTuple

from headrace.pipelines.abuse import abuse_in_second

START: Final = datetime(2026, 1, 5, 7, 56, tzinfo=UTC)
TOPICS: Final = (
    *("site.members", "site.views", "site.searches", "site.clicks", "site.follows"),
    *("site.posts", "site.logins", "site.metrics", "site.logs"),
)
SERVICES: Final = {"pages": 40, "search": 45, "feed": 50, "login": 30}
"""The usual duration of a request to each service, ms."""
COUNTRIES: Final = ("DE", "FR", "JP", "US")
NETWORK_MS: Final = 200
LATE_SHARE, LATE_MS = 0.02, 20_000
OFFLINE_SHARE, OFFLINE_MS = 0.003, (60_000, 200_000)
DOUBLED_SHARE, DOUBLED_MS = 0.01, 10_000
CLICK_DELAY_MS: Final = (500, 8_000)
ITEMS_SHOWN: Final = 4

_KINDS: Final = {"metrics": 40, "views": 25, "searches": 8, "logins": 6, "logs": 5, "follows": 5, "posts": 3}
_Happening = tuple[int, str, str, dict[str, Any]]
"""(time_ms, topic without `site.`, key, fields)"""


class SiteEvent(NamedTuple):
    """One record of a topic. `arrival_ms` is its timestamp."""

    topic: str
    key: str
    value: dict[str, Any]
    arrival_ms: int

    def encoded(self) -> bytes:
        """The value as the topic has it."""
        return json.dumps(self.value, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Site:
    """What is simulated: `rate` ordinary events a second, for so many seconds from `start` on."""

    seed: int = 1
    seconds: int = 480
    rate: int = 2000
    members: int = 400
    items: int = 60
    start: datetime = START

    @property
    def start_ms(self) -> int:
        return int(self.start.timestamp() * 1000)

    def click_rate(self, item: int) -> float:
        """The probability that a member clicks on the item when it is shown: what `relevance` is to find out."""
        return 0.02 + 0.3 * ((item * 37) % self.items) / self.items

    def events(self) -> Iterator[SiteEvent]:
        """All events, in order of arrival."""
        random = Random(self.seed)
        waiting: list[tuple[int, int, SiteEvent]] = []
        number = 0
        for second in range(self.seconds):
            now_ms = self.start_ms + 1000 * second
            happenings = self._joins() if second == 0 else []
            happenings += self._ordinary(random, second)
            happenings += abuse_in_second(random, second, self.seconds, now_ms)
            for happening in happenings:
                for event in _arrivals(random, f"{self.seed}-{number}", happening):
                    heapq.heappush(waiting, (event.arrival_ms, number, event))
                    number += 1
            while waiting and waiting[0][0] < now_ms:
                yield heapq.heappop(waiting)[2]
        while waiting:
            yield heapq.heappop(waiting)[2]

    def _joins(self) -> list[_Happening]:
        names = [_member(number) for number in range(self.members)]
        fields = [{"member": name, "country": COUNTRIES[at % len(COUNTRIES)]} for at, name in enumerate(names)]
        return [(self.start_ms, "members", name, each) for name, each in zip(names, fields, strict=True)]

    def _ordinary(self, random: Random, second: int) -> list[_Happening]:
        happenings: list[_Happening] = []
        for kind in random.choices(list(_KINDS), list(_KINDS.values()), k=self.rate):
            time_ms = self.start_ms + 1000 * second + random.randrange(1000)
            if kind in ("metrics", "logs"):
                happenings += self._of_server(random, kind, time_ms, second / self.seconds)
            elif kind in ("views", "searches"):
                happenings += self._shown(random, kind, time_ms)
            else:
                happenings.append(self._of_member(random, kind, time_ms))
        return happenings

    def _shown(self, random: Random, kind: str, time_ms: int) -> Iterator[_Happening]:
        """A page with items, and the clicks on them."""
        number = random.randrange(self.members)
        member = _member(number)
        items = random.sample(range(self.items), ITEMS_SHOWN)
        about: dict[str, Any] = {"member": member, "ip": _address(number)}
        about |= {"path": f"/page/{random.randrange(200)}"} if kind == "views" else {"text": f"word{items[0]}"}
        yield time_ms, kind, member, {**about, "items": [f"item{item}" for item in items]}
        for item in items:
            if random.random() < self.click_rate(item):
                clicked_ms = time_ms + random.randint(*CLICK_DELAY_MS)
                yield clicked_ms, "clicks", member, {"member": member, "item": f"item{item}"}

    def _of_member(self, random: Random, kind: str, time_ms: int) -> _Happening:
        number = random.randrange(self.members)
        member = _member(number)
        if kind == "logins":
            is_ok = random.random() < 0.9
            return time_ms, kind, _address(number), {"ip": _address(number), "member": member, "is_ok": is_ok}
        author = _member(int(self.members * random.random() ** 2))  # some are much more popular
        if kind == "follows":
            fields = {"member": member, "author": author, "is_following": random.random() < 0.8}
            return time_ms, kind, author, fields
        return time_ms, "posts", author, {"author": author, "text": f"post {random.getrandbits(48):x}"}

    def _of_server(self, random: Random, kind: str, time_ms: int, elapsed: float) -> Iterator[_Happening]:
        service = random.choice(list(SERVICES))
        server = f"{service}-{random.randrange(3)}"
        slowness = slowness_of(service, elapsed)
        if kind == "metrics":
            duration_ms = int(SERVICES[service] * slowness * random.lognormvariate(0, 0.5)) + 1
            is_error = random.random() < (0.05 if slowness > 2 else 0.002)
            fields = {"server": server, "service": service, "duration_ms": duration_ms, "is_error": is_error}
        else:
            level = "ERROR" if random.random() < (0.3 if slowness > 2 else 0.02) else "INFO"
            fields = {"server": server, "service": service, "level": level, "line": f"request took {slowness:.1f}"}
        yield time_ms, kind, server, fields


def slowness_of(service: str, elapsed: float) -> float:
    """How much slower than usual a service is, after a share of the simulated time.

    `search` is slow for a sixth of the time. `login` is a bit slow for a fifth: between the two levels of an alert.
    """
    if service == "search" and 0.3 <= elapsed < 0.47:
        return 6.0
    if service == "login" and 0.5 <= elapsed < 0.7:
        return 2.2
    return 1.0


def _arrivals(random: Random, id_: str, happening: _Happening) -> Iterator[SiteEvent]:
    """The event as it arrives: once or twice, at once or late."""
    time_ms, topic, key, fields = happening
    drawn = random.random()
    delay_ms = random.randrange(NETWORK_MS)
    if drawn < OFFLINE_SHARE:
        delay_ms = random.randint(*OFFLINE_MS)
    elif drawn < OFFLINE_SHARE + LATE_SHARE:
        delay_ms = random.randrange(LATE_MS)
    value = {"id": id_, "time_ms": time_ms, **fields}
    yield SiteEvent(f"site.{topic}", key, value, time_ms + delay_ms)
    if random.random() < DOUBLED_SHARE:
        yield SiteEvent(f"site.{topic}", key, value, time_ms + delay_ms + random.randrange(DOUBLED_MS))


def _member(number: int) -> str:
    return f"m{number:04d}"


def _address(number: int) -> str:
    return f"10.0.{number // 250}.{number % 250 + 1}"
