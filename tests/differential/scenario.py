"""Scenarios: the same requests to `headrace serve` and to Apache Kafka, whose answers must be the same.

    @scenario(ApiKey.METADATA)
    def test_answers_for_an_unknown_topic(ask: Conversation) -> None:
        ask(m.MetadataRequest(topics=[...]))

The function runs once for each broker at every version of the API that Apache Kafka speaks. Its answers are compared
field by field (`answers` says how); each difference fails, with the line that asked, the field, and both values.

A difference that is meant is listed with its reason, at the scenario (`differs=`) or for all in `deliberate`; one of a
scenario that does not occur fails too.
"""

import itertools
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.asker import Asker
from tests.differential.answers import Plain
from tests.differential.conversation import Conversation, Step
from tests.differential.deliberate import EVERYWHERE, Difference, Differs

ANSWERS_FILE = "HEADRACE_DIFFERENTIAL_ANSWERS"
"""The environment variable that names a file to which Apache Kafka's answers are appended."""

ABSENT = "(absent)"
VERSIONS_AT_ONCE = 4
"""The versions of a scenario run beside each other: most of their time is waiting for Apache Kafka."""

Script = Callable[[Conversation], None]
SCENARIOS: set[ApiKey] = set()
"""The APIs that scenarios are about: those of the modules that are imported."""
_runs = itertools.count(1)


@dataclass(frozen=True)
class Brokers:
    """The two brokers of a session, and the versions that each serves by API key."""

    headrace: str
    apache_kafka: str
    ours: dict[int, range]
    theirs: dict[int, range]


def served_versions(bootstrap: str) -> dict[int, range]:
    """What a broker says that it speaks."""
    with Asker(bootstrap) as asker:
        answer = asker.ask(m.ApiVersionsRequest(client_software_name="differential", client_software_version="1"), 3)
    return {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}


def scenario(
    api: ApiKey, versions: range | None = None, *, differs: Sequence[Differs] = (), alone: bool = False
) -> Callable[[Script], Callable[[Brokers], None]]:
    """A test of a script: it runs at every version of the API that Apache Kafka serves, or at those of `versions`.

    `alone`: one version after the other, because Apache Kafka mixes up requests of several versions.
    """

    SCENARIOS.add(api)

    def decorate(script: Script) -> Callable[[Brokers], None]:
        def test(brokers: Brokers) -> None:
            compare(script, brokers, api, versions, differs, alone=alone)

        test.__name__ = script.__name__
        test.__doc__ = script.__doc__
        test.__module__ = script.__module__
        return test

    return decorate


def compare(
    script: Script,
    brokers: Brokers,
    api: ApiKey,
    versions: range | None,
    differs: Sequence[Differs],
    *,
    alone: bool = False,
) -> None:
    """Run a script with both brokers and fail with all differences."""
    found: dict[Difference, list[int]] = {}
    unserved = []
    answers: dict[str, list[int]] = {}
    asked = versions or brokers.theirs[api]
    assert set(asked) <= set(brokers.theirs[api]), f"Apache Kafka serves {brokers.theirs[api]} of {api.title}"
    name = script.__name__.removeprefix("test_")[:40]
    runs = {each: f"{name}-{each}-{os.getpid():x}-{next(_runs)}" for each in asked}
    sides = (brokers.headrace, brokers.apache_kafka)

    def both(version: int) -> list[list[Step]]:
        with ThreadPoolExecutor(len(sides)) as pool:
            return list(pool.map(lambda side: _run(script, side, api, version, runs[version], brokers.theirs), sides))

    with ThreadPoolExecutor(1 if alone else VERSIONS_AT_ONCE) as pool:
        pairs = list(pool.map(both, asked))
    for (version, run), (ours, theirs) in zip(runs.items(), pairs, strict=True):
        if version not in brokers.ours.get(api, ()):
            unserved.append(version)
            ours = theirs
        answers.setdefault(_told_answers(theirs, api, run), []).append(version)
        for difference in dict.fromkeys(map(_without_positions, differences(ours, theirs))):
            named = Difference(difference.line, *(str(each).replace(f"-{run}", "") for each in difference[1:]))
            found.setdefault(named, []).append(version)
    _write_answers(script, answers)
    meant = [*differs, *EVERYWHERE]
    report = [f"headrace serves no version {number} of {api.title}" for number in unserved]
    report += [_told(each, numbers) for each, numbers in found.items() if not any(one.matches(each) for one in meant)]
    occurred = [each for each in differs if any(each.matches(one) for one in found)]
    report += [f"deliberate difference did not occur: {each.field}" for each in differs if each not in occurred]
    if report:
        pytest.fail("\n".join(report), pytrace=False)


def _run(script: Script, bootstrap: str, api: ApiKey, version: int, run: str, versions: dict[int, range]) -> list[Step]:
    with Conversation(bootstrap, script.__code__.co_filename, api, version, run, versions) as conversation:
        try:
            script(conversation)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            conversation.steps.append(Step(_last_line(error, conversation.file), "", "the script ends", -1, failure))
        return conversation.steps


def _last_line(error: Exception, file: str) -> int:
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
            break
        trace = trace.tb_next
    return line


def differences(ours: Sequence[Step], theirs: Sequence[Step]) -> list[Difference]:
    """The fields in which the answers of two brokers differ; a script that ended early is one too."""
    found: list[Difference] = []
    for number in range(max(len(ours), len(theirs))):
        mine = ours[number] if number < len(ours) else None
        other = theirs[number] if number < len(theirs) else None
        step = other or mine
        assert step is not None
        if mine is None or other is None or (mine.api, mine.line) != (other.api, other.line):
            here = Difference(step.line, step.request, "step", _shown(mine), _shown(other))
            return [*found, here]
        if step.api == "the script ends":
            found.append(Difference(step.line, step.request, "step", mine.answer, other.answer))
        found += [Difference(step.line, step.request, *each) for each in _pairs(mine.answer, other.answer, step.api)]
    return found


def _shown(step: Step | None) -> str:
    return "no further step" if step is None else f"{step.api} at line {step.line}: {step.answer}"


def _pairs(ours: Plain, theirs: Plain, path: str) -> list[tuple[str, Plain, Plain]]:
    """(path, ours, theirs) wherever two values differ: as deep as both have something."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [*theirs, *(key for key in ours if key not in theirs)]
        return [
            each for key in keys for each in _pairs(ours.get(key, ABSENT), theirs.get(key, ABSENT), f"{path}.{key}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and path.endswith(".configs"):
        named = [{each["name"]: each for each in side} for side in (ours, theirs)]
        return [
            each
            for key in sorted({**named[0], **named[1]})
            for each in _pairs(named[0].get(key, ABSENT), named[1].get(key, ABSENT), f"{path}[{key}]")
        ]
    if isinstance(ours, list) and isinstance(theirs, list):
        pairs = itertools.zip_longest(ours, theirs, fillvalue=ABSENT)
        return [each for number, pair in enumerate(pairs) for each in _pairs(*pair, f"{path}[{number}]")]
    return [] if ours == theirs else [(path, _short(ours), _short(theirs))]


def _without_positions(difference: Difference) -> Difference:
    return difference._replace(field=re.sub(r"\[[0-9]+\]", "[]", difference.field))


def _told(difference: Difference, versions: Sequence[int]) -> str:
    numbers = ",".join(str(each) for each in versions)
    return (
        f"line {difference.line}: at version {numbers}: {difference.field} of the answer to {difference.request}:\n"
        f"    headrace:     {difference.ours}\n"
        f"    Apache Kafka: {difference.theirs}"
    )


def _told_answers(steps: Sequence[Step], api: ApiKey, run: str) -> str:
    lines = []
    for step in steps:
        at = "" if step.api == api.title or step.version == -1 else f" {step.version}"
        lines.append(f"- {step.api}{at} {step.request}\n  - {_short(step.answer)}\n")
    return "".join(lines).replace(f"-{run}", "")


def _write_answers(script: Script, answers: dict[str, list[int]]) -> None:
    if not (file := os.environ.get(ANSWERS_FILE)):
        return
    with Path(file).open("a") as out:
        for text, versions in answers.items():
            out.write(f"\n### {script.__name__}: {', '.join(map(str, versions))}\n{text}")


def _short(value: Plain) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_short(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_short(item) for item in value) + "]"
    return str(value)
