"""Generates the table of settings in docs/client.md from the client's own table.

The block of a kind stands between `<!-- settings of a KIND -->` and `<!-- end of settings -->`.
"""

import re
from operator import attrgetter
from pathlib import Path
from typing import Any

from headrace.client.consumer.settings import ConsumerSettings
from headrace.client.core.options import KINDS, Option
from headrace.client.core.settings import ClientSettings
from headrace.client.producer.settings import ProducerSettings
from headrace.client.share.settings import ShareConsumerSettings

PAGE = Path(__file__).parents[1] / "docs" / "client.md"
BLOCK = re.compile(r"(<!-- settings of a (?P<kind>\w+) -->\n).*?(<!-- end of settings -->)", re.DOTALL)
DEFAULTS: dict[str, Any] = {
    "client": ClientSettings(),
    "producer": ProducerSettings(),
    "consumer": ConsumerSettings(),
    "share_consumer": ShareConsumerSettings(),
}


def client_page() -> str:
    """The page with new tables."""
    return BLOCK.sub(lambda found: f"{found[1]}{_table(found['kind'])}\n{found[3]}", PAGE.read_text())


def _table(kind: str) -> str:
    lines = ["| Kafka's name | ours, if it differs | default | meaning |", "|---|---|---|---|"]
    for option in KINDS[kind]:
        ours = "" if option.ours == option.kafka.replace(".", "_") else f"`{option.ours}`"
        lines.append(f"| `{option.kafka}` | {ours} | {_default(kind, option)} | {option.doc} |")
    return "\n".join(lines)


def _default(kind: str, option: Option) -> str:
    value = attrgetter(option.field)(DEFAULTS[kind])
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
