"""The schema notation, and what is generated from it."""

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.protocol.codec import schema
from tests.protocol.random_messages import SCHEMAS

ROOT = Path(schema.__file__).parents[4]
EXAMPLE = """\
api 7 Example

# a remark
request 0-4 flexible 3+
  name string?1+ 1+ = null ignorable
  topics [Topic]
    id uuid
    parts [int32]? 2+ = null
  shared Common? 4+ = null
  limit int64 3+ = -5 tag 2
  late string = text 1-2
"""


def test_a_line_says_name_type_versions_default_tag_and_whether_it_may_be_ignored() -> None:
    text = EXAMPLE.replace("  late string = text 1-2\n", "  struct Common\n    host string\n")
    (message,) = schema.parse(text)
    assert (message.name, message.api_key, message.versions, message.flexible_from) == (
        "ExampleRequest",
        7,
        range(5),
        3,
    )
    name, topics, shared, limit = message.structs[""]
    assert (name.versions, name.nullable, name.default, name.ignorable) == (range(1, 5), range(1, 5), None, True)
    assert (topics.type, topics.is_array, topics.is_struct, topics.versions) == ("Topic", True, True, range(5))
    assert (shared.versions, shared.nullable, message.structs["Common"][0].name) == (range(4, 5), range(4, 5), "host")
    assert (limit.default, limit.tag, limit.tagged) == (-5, 2, range(3, 5))
    _, parts = message.structs["Topic"]
    assert (parts.type, parts.is_array, parts.is_struct, parts.versions) == ("int32", True, False, range(2, 5))


def test_a_line_that_does_not_parse_is_named() -> None:
    with pytest.raises(ValueError, match="schema line 11: 'late string = text 1-2'"):
        schema.parse(EXAMPLE)


def test_the_stubs_are_what_the_schemas_say() -> None:
    script = ROOT / "scripts" / "make_messages_pyi.py"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False).returncode == 0


def test_requests_and_responses_have_the_same_key_versions_and_form() -> None:
    for name, request in SCHEMAS.items():
        if name.endswith("Request"):
            response = SCHEMAS[name.removesuffix("Request") + "Response"]
            assert request[1:4] == response[1:4], name


def test_every_struct_has_a_field_in_every_version_that_uses_it() -> None:
    for message in SCHEMAS.values():
        for fields in message.structs.values():
            for field in fields:
                if field.is_struct and not all(map(message.is_flexible, field.versions)):
                    for version in field.versions:
                        assert any(version in inner.versions for inner in message.structs[field.type]), field


def test_importing_the_protocol_compiles_nothing_and_reads_no_schema() -> None:
    program = (
        "import sys, headrace.protocol.messages as m, headrace.protocol.conversation.negotiation;"
        "heavy = {'inspect', 'dataclasses', 'json', 'asyncio', 'socket', 'ast'} & sys.modules.keys();"
        "print(sorted(heavy), [n for n in vars(m) if n.endswith('Request')])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True
    )
    assert done.stdout.decode().strip() == "[] []", done.stderr
