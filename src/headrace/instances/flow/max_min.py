"""The allocator `max-min`: water-filling by demand, weighted by partitions. Pure.

    limit ┤          ┌──┐
          │      ╔══╗│  │  ┄┄┄ the water level: the same rate per partition for all whose demand is above it
          │  ┌──┐║▒▒║│▒▒│
          │  │▒▒│║▒▒║│▒▒│  ▒ allotted
          └──┴──┴╨──╨┴──┴──
           below   above     Small demands are met in full. What they leave over goes to the others by partitions.

1. If every demand is below 80 % of F, F stands.
2. Each broker gets its `FLOOR` of F, whatever it does, so that a broker that becomes busy is not at 0 until the next
report. 3. The demands, with a `MARGIN` for what a measurement of an interval may miss, are met by water-filling.
4. What is left is shared by partitions, as room to grow.

The demand is not what flows: a broker whose clients were throttled wants more. How much more is measured by the time
that its bucket was overdrawn (`demand`).
"""

from collections.abc import Sequence

from headrace.instances.flow.allotment import STANDS_BELOW, Allotment, Branch, Share, fair_rates

FLOOR = 0.01
"""The share of its F that a broker gets without any demand."""

MARGIN = 0.03
"""What is added to each demand, as a share of it."""

WITHOUT_PARTITIONS = 0.1
"""What a broker weighs, in partitions, that leads none: its first may be on the way."""

FLOWING_LEAST = 0.01
"""The least share of an interval that is taken as free of throttling: a demand is at most 100 times what flowed."""


def demand(flowed: float, throttled_share: float, fair: float) -> float:
    """What clients would use if nobody throttled them, in bytes/s.

    `throttled_share` is the share of the interval, 0 to 1, in which the bucket was overdrawn. In the rest of it clients
    moved what they did, so they would have moved `flowed / rest` in all of it. One that was throttled throughout wants
    at least F.
    """
    if throttled_share <= 0:
        return flowed
    return max(flowed / max(1 - throttled_share, FLOWING_LEAST), fair * min(throttled_share, 1))


def allot_max_min(limit: float, shares: Sequence[Share]) -> Allotment:
    """Shares out the limit by demand."""
    if not shares:
        return Allotment([], Branch.FAIR)
    fair = fair_rates(limit, [each.partitions for each in shares])
    if all(each.demand < STANDS_BELOW * f or each.demand <= 0 for each, f in zip(shares, fair, strict=True)):
        return Allotment(fair, Branch.FAIR)
    weights = [max(each.partitions, WITHOUT_PARTITIONS) for each in shares]
    total_weight = sum(weights)
    by_weight = [limit * each / total_weight for each in weights]
    rates = [FLOOR * each for each in by_weight]
    wants = [max(each.demand * (1 + MARGIN) - rate, 0.0) for each, rate in zip(shares, rates, strict=True)]
    left = limit * (1 - FLOOR)
    level = water_level(left, wants, weights)
    for index, want in enumerate(wants):
        met = min(want, level * weights[index])
        rates[index] += met
        left -= met
    if left <= limit * 1e-9:
        return Allotment(rates, Branch.WATER_FILLED)
    return Allotment(
        [rate + left * weight / total_weight for rate, weight in zip(rates, weights, strict=True)], Branch.DEMAND_MET
    )


def water_level(limit: float, wants: Sequence[float], weights: Sequence[float]) -> float:
    """The rate per weight at which `sum(min(want, level * weight))` is the limit; infinite if the wants sum to less.

    Weights are above 0. Source: the "progressive filling" of Bertsekas and Gallager, Data Networks, 6.5.2.
    """
    left, weight = limit, sum(weights)
    for want, each in sorted(zip(wants, weights, strict=True), key=lambda pair: pair[0] / pair[1]):
        if want * weight > left * each:
            return left / weight
        left -= want
        weight -= each
    return float("inf")
