"""Rules decide as Apache Kafka's own authorizers do, which run beside ours on random rules and questions: AclAuthorizer
of 3.9, and StandardAuthorizer of 4.3.

Three questions are not asked, on which the two differ, each only of one of them. StandardAuthorizer does not apply
rules for `*` to a resource whose name begins with `*`; AclAuthorizer and ours do. It finds that a principal may
DESCRIBE some resource of a type if a rule for `*` implies it; AclAuthorizer and ours look for DESCRIBE itself. Nobody
asks this: producers need WRITE. AclAuthorizer finds that everybody may use some resource of a type if resources without
rules are everybody's, though a rule for `*` leaves none; StandardAuthorizer and ours do not.
"""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import IO

import pytest

from headrace.security.access import Operation, RequestOrigin, ResourceType
from headrace.security.acls.authorizer import AclAuthorizer
from headrace.security.acls.model import Binding, Entry, Pattern, PatternType, Permission
from tests.examples import QUICK
from tests.harness import stop_process
from tests.peers import kafka
from tests.peers.node import old_java

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or ""),
]
SOURCES = Path(__file__).parent / "java"
SEEDS = range(20 if QUICK else 100)
QUESTIONS = 100
NAMES = ["a", "ab", "abc", "b", "ba", "*", "*a", "a*", "kafka-cluster", "ä"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "User:root", "Group:alice"]
HOSTS = ["*", "10.0.0.7", "10.0.0.8", "0:0:0:0:0:0:0:1"]
TYPES = [each for each in ResourceType if each is not ResourceType.ANY]
OPERATIONS = [each for each in Operation if each is not Operation.ANY]


class Java:
    """One of Kafka's authorizers."""

    def __init__(self, stdin: IO[str], stdout: IO[str], *, is_old: bool) -> None:
        self._stdin, self._stdout, self.is_old = stdin, stdout, is_old
        self.operations = [each for each in OPERATIONS if not (is_old and each is Operation.TWO_PHASE_COMMIT)]
        self.asked = [each for each in NAMES if is_old or each != "*a"]

    def is_asked_for_any(self, operation: Operation, *, everybody_may: bool, has_wildcard: bool) -> bool:
        """Whether it decides as ours about some resource of a type."""
        if self.is_old:
            return not (everybody_may and has_wildcard)
        return operation not in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)

    def tell(self, *words: object) -> None:
        """Sends one line."""
        self._stdin.write("\t".join(str(int(each)) if isinstance(each, int) else str(each) for each in words) + "\n")

    def answers(self, count: int) -> list[bool]:
        """The answers to as many questions."""
        self._stdin.flush()
        return [self._stdout.readline() == "1\n" for _ in range(count)]


@pytest.fixture(scope="module", params=["AclAuthorizer", "StandardAuthorizer"])
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    is_old, directory = request.param == "AclAuthorizer", tmp_path_factory.mktemp("java")
    command = [*kafka.java_command(directory, *kafka.QUICK_START), str(SOURCES / "Authorizer.java")]
    if is_old:
        command = [*old_java(directory, shared=()), str(SOURCES / "AclAuthorizerOf39.java")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
    assert process.stdin is not None
    assert process.stdout is not None
    yield Java(process.stdin, process.stdout, is_old=is_old)
    process.stdin.close()
    stop_process(process)  # type: ignore[arg-type]


def rules_of(random: Random, operations: Sequence[Operation]) -> Sequence[Binding]:
    """Few types, names and principals, so that rules meet."""
    types = random.sample(TYPES, 2)
    return [
        Binding(
            Pattern(
                random.choice(types), random.choice(NAMES), random.choice([PatternType.LITERAL, PatternType.PREFIXED])
            ),
            Entry(
                random.choice(PRINCIPALS),
                random.choice(HOSTS),
                random.choice(operations),
                random.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
            ),
        )
        for _ in range(random.randrange(20))
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_decision_is_that_of_apache_kafka(java: Java, seed: int) -> None:
    random = Random(seed)
    rules = rules_of(random, java.operations)
    allow_if_no_rule = random.random() < 0.3
    ours = AclAuthorizer(["User:root"], allow_if_no_rule=allow_if_no_rule)
    java.tell("clear", str(allow_if_no_rule).lower())
    for pattern, entry in dict.fromkeys(rules):
        ours.replace(pattern, [*ours.entries(pattern), entry])
        java.tell("rule", pattern.resource, pattern.name, pattern.kind, *entry)
    types = sorted({each.pattern.resource for each in rules}) or TYPES
    decided = []
    for _ in range(QUESTIONS):
        who = random.choice([each for each in PRINCIPALS if each != "User:*"])
        where = random.choice(HOSTS[1:])
        origin = RequestOrigin(who, "::1" if ":" in where else where, "PLAINTEXT", None)
        what, kind, name = random.choice(java.operations[1:]), random.choice(types), random.choice(java.asked)
        java.tell("ask", who, where, what, kind, name)
        decided.append(ours.permits(origin, what, kind, name))
        has_wildcard = bool(ours.entries(Pattern(kind, "*", PatternType.LITERAL)))
        if java.is_asked_for_any(what, everybody_may=allow_if_no_rule, has_wildcard=has_wildcard):
            java.tell("any", who, where, what, kind)
            decided.append(ours.permits_any(origin, what, kind))
    assert decided == java.answers(len(decided))
