"""Measures what authorization costs a plain produce: in process, from the readable event to the response, without the
system calls of the socket.

    without    no authorizer
    kept       10,000 rules; the connection keeps the decision, as for all but the first request
    made       10,000 rules, one of which has just changed, so that the decision is made again: the worst case

The first two are measured in turns, and the best round of each is compared, since other load on the machine can only
add time. Decisions alone are measured too.

    python benchmarks/broker/authorization.py [--json]
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker.phases import TOPIC, connected, produce_frame
from headrace.broker.app import running
from headrace.broker.request.admission import Admission
from headrace.broker.services import Services
from headrace.config import parse_broker
from headrace.controller.decisions.topics import RequestedTopic
from headrace.security.access import ANONYMOUS, Operation, RequestOrigin, ResourceType
from headrace.security.acls.authorizer import AclAuthorizer
from headrace.security.acls.model import Entry, Pattern, PatternType, Permission

ROUNDS, CALLS = 1000, 50
RULES = 10_000
AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
COST_MAX = 0.03


def fill(rules: AclAuthorizer) -> None:
    """Ten thousand rules: literal and prefixed ones of many topics and users, and one that allows the produce."""
    read = Entry("User:somebody", "*", Operation.READ, Permission.ALLOW)
    for number in range(RULES // 2):
        entry = read._replace(principal=f"User:u{number % 100}")
        rules.replace(Pattern(ResourceType.TOPIC, f"topic-{number}"), [entry])
        rules.replace(Pattern(ResourceType.TOPIC, f"{TOPIC[: number % 6]}{number}", PatternType.PREFIXED), [entry])
    rules.replace(
        Pattern(ResourceType.TOPIC, TOPIC), [Entry(ANONYMOUS, "127.0.0.1", Operation.WRITE, Permission.ALLOW)]
    )


def micros(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The microseconds of one call in the best round of each, measured in turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            started = time.perf_counter()
            for _ in range(CALLS):
                call()
            best[name] = min(best[name], (time.perf_counter() - started) / CALLS * 1e6)
    return best


async def started(stack: AsyncExitStack, settings: dict[str, str]) -> Services:
    """A broker with one topic."""
    directory = stack.enter_context(tempfile.TemporaryDirectory())
    config = parse_broker({"listeners": "127.0.0.1:0", "log.dirs": directory, **settings})
    broker, _ = await stack.enter_async_context(running(config))
    await broker.controller.create_topics([RequestedTopic(TOPIC)])
    return broker


async def measure() -> dict[str, float]:
    """Measures produces to one broker in this process, with and without rules, and decisions."""
    async with AsyncExitStack() as stack:
        ruled = await started(stack, AUTHORIZER)
        plain = replace(ruled, admission=Admission())
        assert ruled.authorizer is not None
        rules, admission = ruled.authorizer.rules, ruled.admission
        fill(rules)
        admission.rules_changed(rules)
        frame = produce_frame()
        without, kept, made = (connected(each, frame).on_readable for each in (plain, ruled, ruled))

        def changed() -> None:
            admission.rules_changed(rules)
            made()

        # `made` by itself: it drops the decision of `kept`, too.
        found = micros({"without": without, "kept": kept}) | micros({"made": changed})
    origin = RequestOrigin(ANONYMOUS, "127.0.0.1", "PLAINTEXT", None)
    decisions: dict[str, Callable[[], object]] = {
        "a decision": lambda: rules.permits(origin, Operation.WRITE, ResourceType.TOPIC, TOPIC),
        "a denial": lambda: rules.permits(origin, Operation.READ, ResourceType.TOPIC, TOPIC),
        "a decision for a long name": lambda: rules.permits(origin, Operation.WRITE, ResourceType.GROUP, "g" * 30_000),
    }
    return found | micros(decisions)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = asyncio.run(measure())
    cost = found["kept"] / found["without"] - 1
    if arguments.json:
        print(json.dumps({"micros": found, "cost": cost}))
        return
    for name, value in found.items():
        print(f"{name:30} {value:8.2f} µs")
    print(f"authorization costs a plain produce {cost:.1%}; the aim is at most {COST_MAX:.0%}")


if __name__ == "__main__":
    main()
