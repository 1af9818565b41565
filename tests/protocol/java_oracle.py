"""Kafka's own serializers as an oracle: a message as JSON to Java, its bytes back. Also writes the golden file.

    python -m tests.protocol.java_oracle          writes tests/protocol/golden/messages.jsonl anew

Needs Java 17 and Maven, which fetches Apache Kafka's jars (see tests/peers); the golden file needs nothing.
"""

import base64
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headrace.protocol.codec.message import Message, Struct
from headrace.protocol.codec.schema import Field
from tests.peers import kafka, node
from tests.protocol.random_messages import SCHEMAS, message_class, random_message

GOLDEN = Path(__file__).parent / "golden" / "messages.jsonl"
GOLDEN_NAMES = """
ApiVersions Metadata Produce Fetch ListOffsets CreateTopics DeleteTopics DescribeConfigs FindCoordinator
JoinGroup SyncGroup Heartbeat LeaveGroup OffsetCommit OffsetFetch DescribeGroups ListGroups InitProducerId
LeaderAndIsr UpdateMetadata StopReplica
OffsetCommitKey OffsetCommitValue GroupMetadataKey GroupMetadataValue
ConsumerProtocolSubscription ConsumerProtocolAssignment
"""


def camel(name: str) -> str:
    """A field's name as Kafka's JSON has it."""
    first, *rest = name.split("_")
    joined = first + "".join(word.capitalize() for word in rest)
    return joined.replace("Kraft", "KRaft").replace("kraft", "kRaft")


def as_json(message: Message, version: int) -> dict[str, Any]:
    """A message as Kafka's JSON converters read it."""
    structs = SCHEMAS[type(message).__name__].structs

    def one(field: Field, value: Any) -> Any:
        if isinstance(value, Struct):
            return fields(field.type, value)
        if field.type == "uuid" and value is not None:
            return base64.urlsafe_b64encode(value).decode().rstrip("=")
        return base64.b64encode(value).decode() if field.type in ("bytes", "records") and value is not None else value

    def fields(struct: str, value: Struct) -> dict[str, Any]:
        out = {}
        for field in structs[struct]:
            held = getattr(value, field.name)
            if version in field.versions:
                many = field.is_array and held is not None
                out[camel(field.name)] = [one(field, item) for item in held] if many else one(field, held)
        return out

    return fields("", message)


def from_json(name: str, version: int, values: dict[str, Any]) -> Message:
    """The message that `as_json` was given."""
    structs, outer = SCHEMAS[name].structs, message_class(name)

    def one(field: Field, value: Any) -> Any:
        if value is None:
            return None
        if field.is_struct:
            return getattr(outer, field.type)(**fields(field.type, value))
        if field.type == "uuid":
            return base64.urlsafe_b64decode(value + "==")
        return base64.b64decode(value) if field.type in ("bytes", "records") else value

    def fields(struct: str, held: dict[str, Any]) -> dict[str, Any]:
        known = [(field, held[camel(field.name)]) for field in structs[struct] if version in field.versions]
        return {
            field.name: [one(field, item) for item in value]
            if field.is_array and value is not None
            else one(field, value)
            for field, value in known
        }

    return outer(**fields("", values))


def java_bytes(messages: Iterable[tuple[str, int, dict[str, Any]]], *, newer: bool) -> list[str]:
    """What Java writes for each, in hex; '-' where this release does not know it, '! ...' where it fails."""
    jars = kafka.jars() if newer else node.old_jars()
    lines = []
    for name, version, values in messages:
        is_key = SCHEMAS[name].api_key is None and name.endswith("Key")
        lines.append(f"{name}\t{0 if is_key and newer else version}\t{json.dumps(values)}\n")
    command = ["java", "-cp", f"{jars}/*", str(Path(__file__).parent / "java" / "Oracle.java")]
    done = subprocess.run(command, input="".join(lines), capture_output=True, text=True, check=True, encoding="utf-8")
    return done.stdout.splitlines()


def of_both(messages: list[tuple[str, int, dict[str, Any]]]) -> list[str]:
    """The same from the newest release that knows each."""
    newer, older = (java_bytes(messages, newer=newer) for newer in (True, False))
    return [old if new == "-" else new for new, old in zip(newer, older, strict=True)]


def main() -> None:
    """Writes the golden file."""
    names = [
        name + kind for name in GOLDEN_NAMES.split() for kind in ("", "Request", "Response") if name + kind in SCHEMAS
    ]
    wanted = [(name, version) for name in names for version in SCHEMAS[name].versions]
    messages = [(name, version, as_json(random_message(name, version, 7), version)) for name, version in wanted]
    answers = of_both(messages)
    GOLDEN.parent.mkdir(exist_ok=True)
    with GOLDEN.open("w") as file:
        for (name, version, values), answer in zip(messages, answers, strict=True):
            row = {"message": name, "version": version, "bytes": answer, "fields": values}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
