"""`headrace settings`: lists the settings of brokers and topics. It needs no running broker."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from headrace.cli.output import Json, print_json, print_table
from headrace.cli.shared import AsJson, UsageProblem
from headrace.config import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, format_value
from headrace.config.explanation import meaning, shown_default


def list_settings(
    pattern: Annotated[
        str | None, typer.Argument(metavar="[PATTERN]", help="Part of a setting's name; * and ? are wildcards.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List the settings of brokers and topics."""
    found = [(owner, each) for owner, each in _all() if pattern is None or _matches(each, pattern)]
    if not found:
        raise UsageProblem(f"no setting matches {pattern!r}; `headrace settings` without a pattern lists all")
    if json:
        print_json([_as_json(owner, each) for owner, each in found])
    else:
        rows = [(each.name, owner, each.kind, shown_default(each), meaning(each)) for owner, each in found]
        print_table(["NAME", "OF", "TYPE", "DEFAULT", "MEANING"], rows)


def _all() -> Iterator[tuple[str, Setting]]:
    for owner, settings in (("broker", BROKER_SETTINGS), ("topic", TOPIC_SETTINGS)):
        for name in sorted(settings):
            yield owner, settings[name][1]


def _matches(setting: Setting, pattern: str) -> bool:
    names = [setting.name, *(name for name, _ in setting.broker_names)]
    wanted = pattern if set("*?[") & set(pattern) else f"*{pattern}*"
    return any(fnmatchcase(name, wanted) for name in names)


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
