"""Message sets that old clients really sent, and segments in which Apache Kafka stored them: the files of old-clients/.

python -m tests.records.golden.capture_old_clients sent
    old-clients/sent.json: what each client sent in each codec, caught by a proxy before `headrace serve`

python -m tests.records.golden.capture_old_clients stored 127.0.0.1:9092 DATA/log
    old-clients/*.log: what Apache Kafka stores of it as each format, and with each codec
    That Kafka is a 3.9 with ZooKeeper, inter.broker.protocol.version=2.8 (else it ignores message.format.version) and
    its data in DATA/log. The segments are copied when everything is written; flushing is not waited for.
"""

import base64
import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path

from tests.broker.recording_proxy import recorded
from tests.conformance.conftest import end_of_topic, new_name
from tests.conformance.model import FROM_START, Consumed, Message, Writing
from tests.conformance.old.old_clients import FIRST_CODECS, OLD_CLIENTS
from tests.conformance.with_programs import PROGRAMS
from tests.harness import HeadraceServer
from tests.wire import PRODUCE, Wire

HERE = Path(__file__).parent / "old-clients"
TIME_MS = 1_451_606_400_000  # 2016-01-01
RECORDS = (
    Message(b"key", b"value", (), TIME_MS),
    Message(None, b"no key", (), TIME_MS + 1),
    Message(b"tombstone", None, (), TIME_MS - 1),
    Message(b"", b"", (), TIME_MS + 2),
    Message(bytes(range(64)), b"well compressed " * 8, (), TIME_MS + 3),
)
FORMAT_VERSIONS = {0: "0.9.0", 1: "0.10.2", 2: "2.8"}


def sent() -> None:
    """Each client writes the same records in each codec that it has."""
    captured: dict[str, dict[str, object]] = {}
    with (
        tempfile.TemporaryDirectory() as directory,
        recorded(HeadraceServer(Path(directory, "data"))) as (sent, address),
    ):
        for client in OLD_CLIENTS:
            for codec in (each for each in FIRST_CODECS if each not in client.gaps):
                topic = new_name()
                with Wire(address) as wire:
                    assert wire.create_topic(topic) == 0
                del sent[:]
                client.produce(address, topic, [client.seen(each) for each in RECORDS], Writing(codec))
                frames = [each for each in sent if struct.unpack_from(">h", each) == (PRODUCE,)]
                (version,) = {struct.unpack_from(">h", each, 2)[0] for each in frames}
                sets = [base64.b64encode(_records_of(each, topic)).decode() for each in frames]
                captured[f"{client.name}/{codec}"] = {"produce_version": version, "sets": sets}
    HERE.joinpath("sent.json").write_text(json.dumps(captured, indent=1) + "\n")


def stored(bootstrap: str, data: Path) -> None:
    """Every client writes to one topic in turn; what the newest Java client reads there is kept beside it."""
    reader = next(each for each in PROGRAMS if each.name == "java 4.3.1")
    read: dict[str, object] = {}
    for magic, version in FORMAT_VERSIONS.items():
        for codec in FIRST_CODECS:
            topic = new_name()
            with Wire(bootstrap) as wire:
                assert wire.create_topic(topic, 1, {"message.format.version": version, "retention.ms": "-1"}) == 0
            for client in OLD_CLIENTS:
                if codec not in client.gaps and client.name.startswith(("scala", "java")):
                    end_of_topic(bootstrap, topic)
                    client.produce(bootstrap, topic, [client.seen(each) for each in RECORDS], Writing(codec))
            name = f"format-{magic}-{codec}"
            shutil.copy(data / f"{topic}-0" / f"{0:020}.log", HERE / f"{name}.log")
            count = end_of_topic(bootstrap, topic)
            read[name] = [_described(each) for each in reader.read(bootstrap, topic, FROM_START, count)]
    HERE.joinpath("stored.json").write_text(json.dumps(read, indent=1) + "\n")


def _described(each: Consumed) -> list[object]:
    """Offset, time, key, value."""
    _, offset, message = each
    return [offset, message.timestamp_ms, _text(message.key), _text(message.value)]


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _records_of(frame: bytes, topic: str) -> bytes:
    """The one partition's records in a Produce request, whatever its version up to 8: they are the last field."""
    at = frame.index(topic.encode()) + len(topic)
    partitions, _, size = struct.unpack_from(">iii", frame, at)
    assert partitions == 1
    assert at + 12 + size == len(frame)
    return frame[at + 12 :]


if __name__ == "__main__":
    if sys.argv[1] == "sent":
        sent()
    else:
        stored(sys.argv[2], Path(sys.argv[3]))
