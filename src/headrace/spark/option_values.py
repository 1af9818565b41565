"""Parses the values of options, with error messages that name the option and what to do.

    sort_out             names as documented, kafka.* separate; the error for a misspelt name suggests the nearest one
    positive, whole ...  one reader for each kind of value
    duration_ms          30s, 15m, 1h: as Spark writes them, milliseconds when there is no unit

Every refusal is an OptionError that names the option, the value, and what to do.
"""

import json
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from headrace.client.security.client_options import security_protocol
from headrace.client.security.secrets import SecretOptions, shown
from headrace.errors import InvalidConfig
from headrace.types import TopicPartition

_KAFKA_PREFIX: Final = "kafka."
_DURATION: Final = re.compile(r"(\d+)\s*([a-z]*)")
_UNIT_MS: Final = MappingProxyType(
    {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
)


class OptionError(ValueError):
    """An option is missing or unknown, or its value cannot be used; the message says what to do."""

    def __init__(self, name: str, value: str | None, what_to_do: str) -> None:
        self.name = name
        self.value = None if value is None else shown(name, value)
        text = name if value is None else f"{name} = {self.value!r}"
        super().__init__(f"headrace option {text}: {what_to_do}")


def sort_out(
    given: Mapping[str, str], known: Collection[str], refused_kafka: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The options under their documented names, and the kafka.* ones without the prefix.

    `refused_kafka` are kafka.* settings that are not supported, with what to do instead.
    """
    canonical = {name.lower(): name for name in known}
    options: dict[str, str] = {}
    kafka: dict[str, str] = SecretOptions()
    for name, value in given.items():
        lower = name.lower()
        if lower.startswith(_KAFKA_PREFIX):
            key = lower.removeprefix(_KAFKA_PREFIX)
            _check_kafka_setting(key, value, refused_kafka)
            kafka[key] = value
        elif lower in canonical:
            options[canonical[lower]] = value
        else:
            near = get_close_matches(lower, canonical, n=1)
            hint = f"did you mean {canonical[near[0]]}?" if near else f"known are {', '.join(known)}, kafka.*"
            raise OptionError(name, value, f"there is no such option; {hint}")
    check_security(kafka)
    return options, kafka


def _check_kafka_setting(key: str, value: str, refused: Mapping[str, str]) -> None:
    if key in refused:
        raise OptionError(f"kafka.{key}", value, f"cannot be set; {refused[key]}")


def check_security(kafka: Mapping[str, str]) -> None:
    """Check the names of security options. Reads nothing that they refer to, which may be on the workers only."""
    try:
        security_protocol(kafka, _KAFKA_PREFIX)
    except InvalidConfig as wrong:
        raise client_refusal(kafka, wrong) from None


def client_refusal(kafka: Mapping[str, str], wrong: InvalidConfig) -> OptionError:
    """The error of the client's settings as one of the option that it names first."""
    for key, value in kafka.items():
        name = f"{_KAFKA_PREFIX}{key}"
        rest = wrong.message.removeprefix(name)
        if rest != wrong.message and rest[:1] in ("=", ":", " "):
            return OptionError(name, value, rest.removeprefix(f"={value!r}").lstrip(": "))
    return OptionError("kafka.*", None, wrong.message)


def bootstrap_servers(kafka: Mapping[str, str]) -> str:
    """The needed address."""
    address = kafka.get("bootstrap.servers", "")
    if not address.strip():
        raise OptionError("kafka.bootstrap.servers", None, "is needed; give the address of a broker, host:port")
    return address


def by_partition(name: str, value: str, *, lowest: int) -> dict[TopicPartition, int]:
    """{"topic":{"0":23}} as numbers from `lowest` on."""
    form = 'write JSON like {"topic":{"0":23,"1":-2}}'
    parsed = json_object(name, value, form if lowest < 0 else 'write JSON like {"topic":{"0":1700000000000}}')
    found: dict[TopicPartition, int] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise OptionError(name, value, f"{form}: {topic!r} has no object of partitions")
        for index, number in partitions.items():
            if not _is_digits(index):
                raise OptionError(name, value, f"{form}: {index!r} is not a partition of {topic!r}")
            if isinstance(number, bool) or not isinstance(number, int) or number < lowest:
                raise OptionError(name, value, f"{topic}-{index}: {number!r} is not a whole number from {lowest} on")
            found[TopicPartition(topic, int(index))] = number
    return found


def json_object(name: str, value: str, form: str) -> dict[str, object]:
    """A JSON object; `form` says how one should look."""
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError as wrong:
        raise OptionError(name, value, f"{form} ({wrong})") from wrong
    if not isinstance(parsed, dict):
        raise OptionError(name, value, form)
    return parsed


def timestamp_ms(name: str, value: str) -> int:
    """Milliseconds since 1970."""
    if not _is_digits(value.strip()):
        raise OptionError(name, value, "write milliseconds since 1970-01-01 UTC, like 1700000000000")
    return int(value)


def one_of(options: Mapping[str, str], name: str, choices: Collection[str], default: str) -> str:
    """One of a few words."""
    value = options.get(name, default).strip().lower()
    if value not in choices:
        raise OptionError(name, options[name], f"is {' or '.join(choices)}")
    return value


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """True or false."""
    return one_of(options, name, ("true", "false"), str(default).lower()) == "true"


def positive(options: Mapping[str, str], name: str) -> int | None:
    """A whole number of at least 1; None if it is not given."""
    return whole(options, name, 0, lowest=1) if name in options else None


def whole(options: Mapping[str, str], name: str, default: int, *, lowest: int = 0) -> int:
    """A whole number of at least `lowest`."""
    if name not in options:
        return default
    value = options[name].strip()
    if not _is_digits(value) or int(value) < lowest:
        raise OptionError(name, options[name], f"is a whole number from {lowest} on")
    return int(value)


def duration_ms(options: Mapping[str, str], name: str, default: str) -> int:
    """A duration as Spark writes it, in milliseconds."""
    value = options.get(name, default).strip().lower()
    found = _DURATION.fullmatch(value)
    if found is None or not value.isascii() or found[2] not in _UNIT_MS:
        raise OptionError(name, options[name], "is a duration like 500ms, 30s, 15m, 1h or 1d")
    return int(found[1]) * _UNIT_MS[found[2]]


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
