"""The allocator of CKafka: by what flows, with room to grow. Pure.

    1  storage full                  production 0, consumption is let through (`allotment.blocked`)
    2  F                             the limit by the partitions on each broker
    3  all brokers below 80 % of F   F
    4  P                             each broker's share of what flows; Pmax and Pmin the largest and the smallest
    5a Pmin / Pmax >= 80 %           by P
    5b otherwise                     the largest gets P, each other one min(P + Pmax * 10 %, Pmax)

The results of step 5 are normalised, so that they sum to the limit. The 10 % are room for small brokers to grow into,
towards a balance. Their price: with one busy broker among n, it gets 1 / (1 + 0.1 * (n - 1)) of the limit, and the rest
is not used. That is 83 % with 3 brokers and 5 % with 200.

Source: Tencent Cloud's description of CKafka, "Ckafka" in "高性能消息队列 CKafka 核心原理介绍(下)".
"""

from collections.abc import Sequence

from headrace.instances.flow.allotment import STANDS_BELOW, Allotment, Branch, Share, fair_rates, normalised

EQUAL_FROM = 0.8
"""Pmin / Pmax from which the brokers count as equally used."""

GROWTH = 0.1
"""The share of Pmax that brokers other than the largest get on top of P."""


def allot_by_seed(limit: float, shares: Sequence[Share]) -> Allotment:
    """Shares out the limit; `demand` is not looked at. A broker where nothing flows is below 80 % of any F, also of
    0."""
    if not shares:
        return Allotment([], Branch.FAIR)
    fair = fair_rates(limit, [each.partitions for each in shares])
    if all(each.flowed < STANDS_BELOW * f or each.flowed <= 0 for each, f in zip(shares, fair, strict=True)):
        return Allotment(fair, Branch.FAIR)
    flowing = sum(each.flowed for each in shares)
    p = [each.flowed / flowing for each in shares]
    p_max, p_min = max(p), min(p)
    if p_min >= EQUAL_FROM * p_max:
        return Allotment(normalised(limit, p), Branch.BY_FLOW)
    # Of several largest each gets Pmax either way.
    return Allotment(normalised(limit, [min(each + p_max * GROWTH, p_max) for each in p]), Branch.WITH_GROWTH)
