"""`headrace settings`: lists the settings of brokers and topics. It needs no running broker."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from headrace.cli.output import Json, print_json, print_table
from headrace.cli.shared import AsJson, UsageProblem
from headrace.config import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, format_value
from headrace.config.explanation import meaning, named_like, shown_default


def list_settings(
    pattern: Annotated[
        str | None, typer.Argument(metavar="[PATTERN]", help="Part of a setting's name; * and ? are wildcards.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List the settings of brokers and topics."""
    found = [(owner, each) for owner, each in _all() if pattern is None or _matches(each, pattern)]
    if not found:
        raise UsageProblem(_nothing_found(pattern or ""))
    if json:
        print_json([_as_json(owner, each) for owner, each in found])
    else:
        rows = [
            (each.name, _set_by(owner, each), each.kind, shown_default(each), meaning(each)) for owner, each in found
        ]
        print_table(["NAME", "OF", "TYPE", "DEFAULT", "MEANING"], rows)


def _set_by(owner: str, setting: Setting) -> str:
    """`topic, broker as log.retention.ms`: a broker sets the default of a topic setting by another name."""
    return ", broker as ".join([owner, *(name for name, _ in setting.broker_names[:1])])


def _all() -> Iterator[tuple[str, Setting]]:
    for owner, settings in (("broker", BROKER_SETTINGS), ("topic", TOPIC_SETTINGS)):
        for name in sorted(settings):
            yield owner, settings[name][1]


def _nothing_found(pattern: str) -> str:
    others = named_like(_wildcards(pattern))
    if not others:
        return f"no setting matches {pattern!r}; `headrace settings` without a pattern lists all"
    named = ", ".join(others[:3]) + (f" and {len(others) - 3} others" if len(others) > 3 else "")
    return (
        f"{pattern!r} matches only settings of Apache Kafka that are ignored or refused here: {named}; "
        f"`headrace serve --explain {others[0]}` says why"
    )


def _matches(setting: Setting, pattern: str) -> bool:
    names = [setting.name, *(name for name, _ in setting.broker_names)]
    return any(fnmatchcase(name, _wildcards(pattern)) for name in names)


def _wildcards(pattern: str) -> str:
    return pattern if set("*?[") & set(pattern) else f"*{pattern}*"


def _as_json(owner: str, setting: Setting) -> Json:
    return {
        "name": setting.name,
        "of": owner,
        "type": setting.kind,
        "default": format_value(setting.default),
        "unit": setting.unit,
        "choices": list(setting.choices),
        "broker_names": [name for name, _ in setting.broker_names],
        "meaning": setting.doc,
    }
