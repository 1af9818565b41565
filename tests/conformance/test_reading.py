"""Where real clients read: from an offset, from a time, from the end on."""

from tests.conformance.cases import case
from tests.conformance.checks import assert_same, other_writer
from tests.conformance.model import EARLIEST, LATEST, TIMED, Client, FromOffset, FromTime, Writing


@case("offset")
def test_reads_from_an_offset(bootstrap: str, topic: str, client: Client) -> None:
    client.produce(bootstrap, topic, TIMED, Writing())
    for first in (0, 7, 19):
        read = client.read(bootstrap, topic, FromOffset(first), len(TIMED) - first)
        assert [each.message.value for each in read] == [each.value for each in TIMED[first:]]
        assert read[0].offset == first


@case("time")
def test_reads_from_a_time(bootstrap: str, topic: str, client: Client) -> None:
    other_writer().produce(bootstrap, topic, TIMED, Writing("gzip"))
    for first, asked_ms in ((0, 0), (5, TIMED[5].timestamp_ms), (6, (TIMED[5].timestamp_ms or 0) + 1)):
        read = client.read(bootstrap, topic, FromTime(asked_ms or 0), len(TIMED) - first)
        assert_same(read, TIMED[first:], first, client)


@case("end")
def test_reads_only_what_is_new_from_the_end(bootstrap: str, topic: str, client: Client) -> None:
    client.produce(bootstrap, topic, TIMED[:5], Writing())
    read = client.read_new(bootstrap, topic, 3, lambda: client.produce(bootstrap, topic, TIMED[5:8], Writing()))
    assert [each.offset for each in read] == [5, 6, 7]
    assert [each.message.value for each in read] == [each.value for each in TIMED[5:8]]


@case("list offsets")
def test_lists_the_first_offset_the_end_and_one_by_time(bootstrap: str, topic: str, client: Client) -> None:
    other_writer().produce(bootstrap, topic, TIMED, Writing())
    assert client.list_offset(bootstrap, topic, EARLIEST) == 0
    assert client.list_offset(bootstrap, topic, LATEST) == len(TIMED)
    assert client.list_offset(bootstrap, topic, TIMED[7].timestamp_ms or 0) == 7
