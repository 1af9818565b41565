"""What must be true of instances, whatever happens to brokers and controllers:

    leak          a client of an instance saw a name, an id, a record or an offset of another, or of the life before
    limit         the rates in force over all brokers add up to more than the limit, and F of those out of reach
    late rate     clients were held back at a rate that had not been in force for long
    volume        more was produced in all than the limits allowed
    capacity      the controller counted more than there is, or in the end anything else
    overshoot     an instance that had been full for longer than the brokers need to hear of it still grew
    instance      one was not brought back, or not removed, long after everything was healed

The clients of each instance are judged by the other rules, too, in a history of their own.
"""

from collections.abc import Iterator

from tests.simulation.finding import Finding, time
from tests.simulation.history import History

NOWHERE = -1
ROUNDING = 1.001
"""Also the trickle that each broker may always use."""


def check_instances(history: History) -> Iterator[Finding]:
    """Everything that is wrong with instances, but for what their own histories tell."""
    told = set()
    for leak in history.leaks:
        if (leak.instance, leak.what) not in told:
            told.add((leak.instance, leak.what))
            yield Finding("leak", NOWHERE, f"{leak.client} of {leak.instance} at {time(leak.at_us)}: {leak.what}")
    for rates in history.rates:
        if rates.in_force > (rates.limit + rates.unreachable) * ROUNDING:
            yield Finding(
                "limit",
                NOWHERE,
                f"{rates.in_force:.0f} bytes/s {rates.direction} of {rates.instance} in force at {time(rates.at_us)}: "
                f"the limit is {rates.limit:.0f}, and F of brokers out of reach {rates.unreachable:.0f}",
            )
    for late in history.late_rates:
        yield Finding(
            "late rate",
            NOWHERE,
            f"broker {late.broker} at {time(late.at_us)} holds {late.instance} to {late.rate:.0f} bytes/s, though at "
            f"most {late.in_force:.0f} were in force",
        )
    for volume in history.volumes:
        if volume.produced > volume.allowed:
            yield Finding(
                "volume",
                NOWHERE,
                f"{volume.produced:.0f} bytes were produced to {volume.instance}, at most {volume.allowed:.0f} allowed",
            )
    for seen in history.stored:
        if seen.counted > seen.held or (seen.is_exact and seen.counted != seen.held):
            yield Finding(
                "capacity",
                NOWHERE,
                f"the controller counts {seen.counted} bytes of {seen.instance} at {time(seen.at_us)}: there are "
                f"{seen.held}",
            )
    for grown in history.full:
        if grown.held > grown.blocked_at:
            yield Finding(
                "overshoot",
                NOWHERE,
                f"{grown.instance} has {grown.held} bytes at {time(grown.at_us)}: its capacity is {grown.capacity}, "
                f"and it had {grown.blocked_at} when every broker had to know that this is full",
            )
            break
    for what in history.instances_left:
        yield Finding("instance", NOWHERE, what)
