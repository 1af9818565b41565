"""What is said about acquired records: each once, in runs of offsets, whatever the order of deliveries and answers."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.share.acknowledgements import (
    GAP,
    AcknowledgementBatch,
    AcknowledgeType,
    PartitionRecords,
    batches_of,
)
from headrace.types import Offset

ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW


@given(st.dictionaries(st.integers(0, 60).map(Offset), st.integers(0, 4)))
def test_batches_have_each_offset_once_with_its_type(acknowledged: dict[Offset, int]) -> None:
    found: dict[int, int] = {}
    last = -2
    for batch in batches_of(acknowledged):
        assert batch.first_offset > last + 1  # runs are as long as can be
        last = batch.last_offset
        offsets = range(batch.first_offset, batch.last_offset + 1)
        types = batch.types * len(offsets) if len(batch.types) == 1 else batch.types
        found.update(zip(offsets, types, strict=True))
    assert found == acknowledged


def test_one_type_stands_for_a_run() -> None:
    assert batches_of({Offset(3): 1, Offset(4): 1, Offset(5): 1, Offset(7): 1, Offset(8): 2}) == [
        AcknowledgementBatch(3, 5, [1]),
        AcknowledgementBatch(7, 8, [1, 2]),
    ]


EVENTS = st.lists(
    st.tuples(st.sampled_from(["deliver", "accept", "release", "renew", "gap", "take", "rest"]), st.integers(0, 9))
)


@given(EVENTS)
def test_every_record_is_acknowledged_once_for_each_delivery(events: list[tuple[str, int]]) -> None:
    records = PartitionRecords()
    held: set[int] = set()  # by the application, which may acknowledge them
    expected: dict[int, int] = {}
    acquired: set[int] = set()
    for event, offset in events:
        match event:
            case "deliver" if offset not in acquired:
                records.delivered([offset])
                held.add(offset)
                acquired.add(offset)
            case "gap" if offset not in acquired:
                records.gaps([offset])
                expected[offset] = GAP
                acquired.add(offset)
            case "accept" | "release" | "renew":
                kind = {"accept": ACCEPT, "release": RELEASE, "renew": RENEW}[event]
                assert records.acknowledge(offset, kind) == (offset in held)
                if offset in held:
                    expected[offset] = kind
            case "take":
                assert records.take() == expected
                held -= {each for each, kind in expected.items() if kind not in (RENEW, GAP)}
                acquired = set(held)
                expected = {}
            case "rest":
                open_now = records.unacknowledged
                records.accept_open()
                expected.update(dict.fromkeys(held - expected.keys() - renewed_of(records), ACCEPT))
                assert open_now == 0 or records.unacknowledged == 0
    assert records.take() == expected


def renewed_of(records: PartitionRecords) -> set[int]:
    """Renewed records, which the application keeps until it acknowledges them again."""
    return set(records._renewed)
