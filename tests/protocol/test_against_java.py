"""Byte equality with Kafka's own serializers: golden bytes in every run, random messages where Java is."""

import json

import pytest

from tests import rotation
from tests.peers import kafka
from tests.protocol import java_oracle
from tests.protocol.random_messages import INITIALS, KAFKAS, message_class, named, random_message

ROWS = [json.loads(line) for line in java_oracle.GOLDEN.read_text().splitlines()]


@pytest.mark.parametrize("initial", INITIALS)
def test_golden_bytes_of_kafkas_serializer(initial: str) -> None:
    for row in ROWS:
        name, version, data = str(row["message"]), int(str(row["version"])), bytes.fromhex(str(row["bytes"]))
        if name.startswith(initial):
            with named(name, version):
                fields = row["fields"]
                assert isinstance(fields, dict)
                message = java_oracle.from_json(name, version, fields)
                assert message.encode(version) == data
                assert message_class(name).decode(version, data) == (message, len(data))


@pytest.mark.peer
@pytest.mark.slow
def test_random_messages_of_every_version_are_kafkas_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    seed = rotation.drawn("messages for Java", 0)
    messages = [random_message(name, version, seed) for name, version in KAFKAS]
    pairs = list(zip(KAFKAS, messages, strict=True))
    given = [(name, version, java_oracle.as_json(message, version)) for (name, version), message in pairs]
    answers = java_oracle.of_both(given)
    differ = [
        (name, version, answer[:200])
        for ((name, version), message), answer in zip(pairs, answers, strict=True)
        if message.encode(version).hex() != answer
    ]
    with capsys.disabled():
        print(f"\nJava: {len(KAFKAS) - len(differ)} of {len(KAFKAS)} message versions byte-equal (seed {seed})")
    assert differ == []
