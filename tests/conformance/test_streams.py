"""Real Kafka Streams count words, in groups of either protocol."""

from collections import defaultdict
from pathlib import Path

from headrace.protocol import messages as m
from tests.asker import Asker
from tests.conformance.cases import case
from tests.conformance.checks import other_writer
from tests.conformance.conftest import new_topic
from tests.conformance.model import CLASSIC_STREAMS, STREAMS, Client, Message, Writing
from tests.conformance.streaming import StreamingClient
from tests.harness import stop_process, tail

WORDS = ("all", "words", "are", "counted", "once")
LINES = 20


@case(STREAMS)
def test_a_word_count_in_a_group_of_the_streams_protocol(
    bootstrap: str, topic: str, client: Client, tmp_path: Path
) -> None:
    _count_words(bootstrap, topic, client, tmp_path, "streams")


@case(CLASSIC_STREAMS)
def test_a_word_count_in_a_classic_group(bootstrap: str, topic: str, client: Client, tmp_path: Path) -> None:
    _count_words(bootstrap, topic, client, tmp_path, "classic")


def _count_words(bootstrap: str, source: str, client: Client, directory: Path, protocol: str) -> None:
    assert isinstance(client, StreamingClient)
    target = new_topic(bootstrap)
    lines = [Message(None, " ".join(WORDS).encode())] * LINES
    other_writer().produce(bootstrap, source, lines, Writing())
    process = client.count_words(bootstrap, source, target, directory, protocol)
    try:
        counts = other_writer().read_committed(bootstrap, target, LINES * len(WORDS))
        assert _type_of_group(bootstrap, f"count-{source}") == protocol
    except AssertionError as problem:
        problem.add_note(tail(directory / "streams.log"))
        raise
    finally:
        process.kill()
        stop_process(process)
    by_word: dict[bytes, list[int]] = defaultdict(list)
    for each in counts:
        assert each.message.key is not None
        assert each.message.value is not None
        by_word[each.message.key].append(int(each.message.value))
    assert by_word == {word.encode(): list(range(1, LINES + 1)) for word in WORDS}


def _type_of_group(bootstrap: str, group: str) -> str:
    with Asker(bootstrap) as asker:
        answer: m.ListGroupsResponse = asker.ask(m.ListGroupsRequest(), 5)
    return {each.group_id: each.group_type.lower() for each in answer.groups}[group]
