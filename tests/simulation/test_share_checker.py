"""The checker of share groups, with histories written by hand, each with one error or none."""

from typing import Any

import pytest

from tests.simulation.history import Delivery, History, Kind, Outcome, Replica, Sent, ShareAcknowledgement, Stored
from tests.simulation.plan import SHARE_DELIVERIES_MAX
from tests.simulation.share_checker import ACCEPT, RELEASE, check_shares

MS = 1000


def given(member: str, sent_ms: int, count: int = 1, *, is_current: bool = True) -> Delivery:
    return Delivery(member, 0, 7, count, 1, sent_ms * MS, (sent_ms + 10) * MS, is_current)


def acknowledged(
    delivery: Delivery, sent_ms: int, kind: int = ACCEPT, outcome: Outcome = Outcome.ACKNOWLEDGED
) -> ShareAcknowledgement:
    return ShareAcknowledgement(
        delivery.member, 0, 7, kind, delivery.delivery_count, 1, delivery.at_us, sent_ms * MS, (sent_ms + 10) * MS,
        outcome,
    )  # fmt: skip


FIRST = given("a", 100)
HELD = {"deliveries": [FIRST, given("b", 200, 2)], "share_acknowledgements": [acknowledged(FIRST, 300)]}
PASSED = {
    "sent": [Sent("p", 0, "x", -1, is_idempotent=True, began_us=0, outcome=Outcome.ACKNOWLEDGED)],
    "replicas": [Replica(1, 0, True, 0, True, 0, 8, [Stored(7, 0, "x", Kind.PLAIN)])],
    "share_ends": {0: 8},
}


@pytest.mark.parametrize(
    ("history", "kinds"),
    [
        ({"deliveries": [FIRST], "share_acknowledgements": [acknowledged(FIRST, 200)]}, []),
        ({"deliveries": [FIRST, given("b", 300, 2)], "share_acknowledgements": [acknowledged(FIRST, 200)]}, ["again"]),
        (
            {
                "deliveries": [FIRST, given("b", 300, 2, is_current=False)],
                "share_acknowledgements": [acknowledged(FIRST, 200)],
            },
            [],
        ),
        (
            {
                "deliveries": [FIRST, given("b", 300, 2)],
                "share_acknowledgements": [acknowledged(FIRST, 200, outcome=Outcome.UNKNOWN)],
            },
            [],
        ),
        (
            {"deliveries": [FIRST, given("b", 300)], "share_acknowledgements": [acknowledged(FIRST, 200, RELEASE)]},
            ["count"],
        ),
        (
            {"deliveries": [FIRST, given("b", 300, 2)], "share_acknowledgements": [acknowledged(FIRST, 200, RELEASE)]},
            [],
        ),
        ({"deliveries": [given("a", 100, SHARE_DELIVERIES_MAX)]}, []),
        ({"deliveries": [given("a", 100, SHARE_DELIVERIES_MAX + 1)]}, ["deliveries"]),
        (HELD, ["two holders"]),
        ({**HELD, "share_acknowledgements": [acknowledged(FIRST, 300, outcome=Outcome.REFUSED)]}, []),
        (PASSED, ["undelivered"]),
        ({**PASSED, "deliveries": [FIRST], "share_acknowledgements": [acknowledged(FIRST, 200)]}, []),
        (
            {
                **PASSED,
                "deliveries": [FIRST],
                "share_acknowledgements": [acknowledged(FIRST, 200, outcome=Outcome.REFUSED)],
            },
            ["undelivered"],
        ),
        ({**PASSED, "deliveries": [given("a", 100, SHARE_DELIVERIES_MAX)]}, []),
        ({"undrained": ["partition 0: the start offset is 3, the end 8"]}, ["undrained"]),
    ],
)
def test_what_is_found(history: dict[str, Any], kinds: list[str]) -> None:
    assert [finding.kind for finding in check_shares(History(**history))] == kinds
