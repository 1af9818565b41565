"""Generates docs/commands.md, docs/settings.md, docs/apis.md, docs/rights.md, the tables of docs/formats.md,
docs/file-map.md, the settings in docs/client.md, the tables of clients in docs/clients.md and README.md, and the tables
of docs/performance.md that `make bench` records.

Usage: python scripts/reference_pages.py [--check]      --check writes nothing; the exit status is 1 if a page is stale
"""

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from apache_kafka_apis import APACHE_KAFKA, NOT_SERVED
from client_page import client_page
from client_table import clients_page, readme_page
from formats_page import formats_page
from performance_page import performance_page
from rights_page import rights_page

from headrace.broker import options as serve_options
from headrace.broker.handlers import all_modules
from headrace.cli.app import make_command
from headrace.cli.commands import COMMANDS, OWN_WAY
from headrace.config import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, apache_kafka, format_value
from headrace.config.fixed import FIXED
from headrace.protocol.apis import ApiKey
from headrace.spark.load import load_command

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATED = "<!-- written by scripts/reference_pages.py: change the code and run `make generate` -->\n"


def settings_page() -> str:
    """Every setting with its type, default and meaning."""
    topic = sorted((setting for _, setting in TOPIC_SETTINGS.values()), key=lambda each: each.name)
    broker = sorted((setting for _, setting in BROKER_SETTINGS.values()), key=lambda each: each.name)
    return "\n".join(
        [
            "# Settings",
            "",
            GENERATED,
            "Names, units and defaults are those of Apache Kafka, unless the description says otherwise. Broker",
            "settings are given with `headrace serve --set NAME=VALUE` or `--config FILE`. Topic settings are given",
            "when a topic is created or altered. A value out of bounds is refused. An unknown topic setting is",
            "refused; an unknown broker setting is a warning, or refused with `--strict`. `headrace settings` lists",
            "the settings in a terminal. `headrace serve --explain NAME` explains any setting of Apache Kafka 2.8",
            "to 3.9.",
            "",
            "A dynamic broker setting can change while the broker runs: for one broker, or for all that have no own",
            "value, with `headrace config set broker ID|default NAME=VALUE` or `kafka-configs`. A change reaches every",
            "broker at once and outlasts restarts. The default of a topic setting is dynamic under the first name in",
            "parentheses. Numbers of threads and fetchers at most double or halve at a time.",
            "",
            "## Broker settings",
            "",
            *_table(broker, topics=False),
            "",
            "## Topic settings",
            "",
            "The broker setting in parentheses sets the default for all topics.",
            "",
            *_table(topic, topics=True),
            "",
            "## Settings that Apache Kafka changes while it runs, and headrace does not",
            "",
            "A change of them is refused. Every other dynamic setting of Apache Kafka 3.9 and 4.3 is dynamic here",
            "too, or is stored without effect.",
            "",
            "| name | reason |",
            "|---|---|",
            *(f"| `{name}` | {FIXED[name]} |" for name in sorted(FIXED)),
            "",
            "## Settings of Apache Kafka without effect",
            "",
            "These broker settings are accepted, and change nothing.",
            "",
            "| name | reason |",
            "|---|---|",
            *(
                f"| `{name}` | {judged.reason} |"
                for name in apache_kafka.names()
                if isinstance(judged := apache_kafka.judge(name), apache_kafka.Ignored)
            ),
            "",
        ]
    )


def apis_page() -> str:
    """Every API with its key and versions, and the docstring of its module."""
    ordered = all_modules()
    served: dict[ApiKey, range] = {each.API_KEY: each.VERSIONS for each in ordered}
    keys = sorted({*map(int, served), *APACHE_KAFKA})
    rows = [f"| {key} | {ApiKey(key).title} | {_api_cells(served.get(ApiKey(key)), key)} |" for key in keys]
    return "\n".join(
        [
            "# Supported APIs of Kafka's protocol",
            "",
            GENERATED,
            "Every API that headrace serves, beside those that the brokers of Apache Kafka advertise. Apache Kafka 4.3",
            "forms a KRaft quorum, 3.9 is one that keeps its metadata in ZooKeeper. The APIs from key 10000 on are",
            "headrace's own; ApiVersions does not name them.",
            "",
            "| key | API | headrace | Apache Kafka 4.3.1 | Apache Kafka 3.9.2 |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "The changes of each version, and the omissions:",
            "",
            *(line for each in ordered for line in (f"## {_title(each)}", "", "```text", _body(each), "```", "")),
        ]
    )


def _api_cells(own: range | None, key: int) -> str:
    theirs = [_versions(each) if each is not None else "" for each in APACHE_KAFKA.get(key, (None, None))]
    missing = f"not served ({NOT_SERVED.get(key, 'not yet')})"
    return " | ".join([missing if own is None else _versions(own), *theirs])


def handler_index() -> str:
    """The module that tells which APIs are served in which versions, so that a start imports no handler."""
    rows = [
        f"    ApiKey.{each.API_KEY.name}: range({each.VERSIONS[0]}, {each.VERSIONS[-1] + 1}),"
        if each.VERSIONS[0]
        else f"    ApiKey.{each.API_KEY.name}: range({each.VERSIONS[-1] + 1}),"
        for each in all_modules()
    ]
    return "\n".join(
        [
            '"""The APIs served and their versions: API_KEY and VERSIONS of each handler.',
            "",
            "Generated by scripts/reference_pages.py: change the handler and run `make generate`.",
            '"""',
            "",
            "from collections.abc import Mapping",
            "",
            "from headrace.protocol.apis import ApiKey",
            "",
            "VERSIONS: Mapping[ApiKey, range] = {",
            *rows,
            "}",
            "",
        ]
    )


def file_map_page() -> str:
    """Every module with its first sentence."""
    intro = (
        "Each line is the first sentence of a module. [architecture.md](architecture.md) says how they fit together."
    )
    return "\n".join(["# Map of files", "", GENERATED, intro, "", _file_map(), ""])


def commands_page() -> str:
    """Every command with its arguments and options."""
    lines = ["# Commands", "", GENERATED, "`--help` prints the options of a command.", ""]
    lines += _argparse_section("headrace serve", serve_options.build_parser())
    lines += _argparse_section("headrace load", load_command.build_parser())
    cli = make_command(name for name in COMMANDS if name not in OWN_WAY)
    for name, command in _leaves("headrace", cli):
        lines += _click_section(name, command)
    return "\n".join(lines)


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Each command that is not a group, with its full name."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for part, each in sorted(command.commands.items()):
        yield from _leaves(f"{name} {part}", each)


def _argparse_section(name: str, parser: argparse.ArgumentParser) -> list[str]:
    rows = []
    for action in parser._actions:
        if action.dest != "help":
            names = ", ".join(action.option_strings) or str(action.metavar)
            rows.append((names, "" if not action.option_strings else str(action.metavar or ""), action.help or ""))
    return _command_section(name, parser.description or "", rows)


def _click_section(name: str, command: Any) -> list[str]:
    rows = []
    for each in command.params:
        if each.name == "help":
            continue
        is_argument = each.param_type_name == "argument"
        names = (each.metavar or each.name.upper()) if is_argument else ", ".join((*each.opts, *each.secondary_opts))
        value = "" if is_argument or each.is_flag else each.metavar or ""
        rows.append((names, value, " ".join([getattr(each, "help", None) or "", *_default(each)]).strip()))
    return _command_section(name, " ".join((command.help or "").split()), rows)


def _default(option: Any) -> list[str]:
    """The default of an option that has a value; empty for a flag that is off."""
    shown = option.default
    if option.param_type_name == "argument" or shown is None or shown is False or shown == "" or shown == []:
        return []
    return [f"Default: {option.opts[0] if shown is True else shown}."]


def _command_section(name: str, text: str, rows: list[tuple[str, str, str]]) -> list[str]:
    cells = [
        (f"{names} {value}".strip().replace("|", "\\|"), meaning.replace("|", "\\|")) for names, value, meaning in rows
    ]
    table = [f"| `{names}` | {meaning} |" for names, meaning in cells]
    return [f"## {name}", "", text, "", "| option | meaning |", "|---|---|", *table, ""]


def _file_map() -> str:
    lines = []
    for package in sorted({path.parent for path in (ROOT / "src").rglob("*.py")}):
        modules = sorted(path for path in package.glob("*.py") if path.name != "__init__.py")
        name = package.relative_to(ROOT / "src")
        lines += [
            "",
            f"**{name}/** {_first_sentence(package / '__init__.py')}",
            "",
            "| file | what it is |",
            "|---|---|",
        ]
        lines += [f"| [`{each.name}`](../src/{name}/{each.name}) | {_first_sentence(each)} |" for each in modules]
    return "\n".join(lines[1:]) + "\n"


def _first_sentence(module: Path) -> str:
    if not module.exists():
        return ""
    paragraph = (ast.get_docstring(ast.parse(module.read_text())) or "").partition("\n\n")[0]
    text = " ".join(paragraph.split())
    return text.replace("|", "\\|")


def _table(settings: Iterable[Setting], *, topics: bool) -> list[str]:
    rows = ["| name | type | default | meaning |", "|---|---|---|---|"]
    for each in settings:
        broker_names = ", ".join(f"`{name}`" for name, _ in each.broker_names) if topics else ""
        name = f"`{each.name}`" + (f" ({broker_names})" if broker_names else "")
        default = format_value(each.default)
        shown = f"`{default}`{' ' + each.unit if each.unit else ''}" if default else "none"
        choices = f" One of {', '.join(f'`{choice}`' for choice in each.choices)}." if each.choices else ""
        dynamic = " Dynamic." if each.is_dynamic or (topics and broker_names) else ""
        rows.append(f"| {name} | {each.kind} | {shown} | {each.doc}{choices}{dynamic} |")
    return rows


def _title(module: ModuleType) -> str:
    return (module.__doc__ or "").partition(" (")[0]


def _body(module: ModuleType) -> str:
    return (module.__doc__ or "").strip()


def _versions(served: range) -> str:
    return str(served.start) if len(served) == 1 else f"{served.start}–{served.stop - 1}"


def main() -> int:
    """Writes or checks all pages."""
    stale = []
    pages = {
        "src/headrace/broker/handlers/index.py": handler_index(),
        "docs/commands.md": commands_page(),
        "docs/settings.md": settings_page(),
        "docs/apis.md": apis_page(),
        "docs/rights.md": rights_page(GENERATED),
        "docs/file-map.md": file_map_page(),
        "docs/formats.md": formats_page(),
        "docs/client.md": client_page(),
        "docs/clients.md": clients_page(),
        "docs/performance.md": performance_page(),
        "README.md": readme_page(),
    }
    for name, text in pages.items():
        page = ROOT / name
        if page.exists() and page.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            page.write_text(text)
    if "--check" in sys.argv and stale:
        print(f"{', '.join(stale)}: stale, run `make generate`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
