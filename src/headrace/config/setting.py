"""A setting's declaration, and the parsing and formatting of its value.

Values arrive as strings and are parsed once. A value out of bounds raises `InvalidConfig`, which names the setting and
the value. Source: Kafka's `ConfigDef`.
"""

from collections.abc import Callable
from dataclasses import Field, field, fields
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from headrace.errors import InvalidConfig
from headrace.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = bool | int | float | str | tuple[str, ...]
T = TypeVar("T", bound=Value)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Setting(NamedTuple):
    """One setting, as the documentation, DescribeConfigs and the parser use it."""

    name: str
    kind: str  # Kafka's type names: boolean, int, long, double, string, password, list
    default: Value
    doc: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    broker_names: tuple[tuple[str, int], ...] = ()  # broker-level names, each with the factor to this unit
    check: Callable[[str], object] | None = None  # raises ValueError, which says what is wrong with a value
    is_dynamic: bool = False  # whether a broker's setting can change while the broker runs


class Settings:
    """Equality, hash and representation of a class of settings, by its fields.

    Methods that `dataclass` writes for a hundred fields are long, and compiling them costs each start milliseconds.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _compared(self) == _compared(other)

    def __hash__(self) -> int:
        return hash(_compared(self))

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in _fields(self) if each.repr)
        return f"{type(self).__name__}({', '.join(shown)})"


def _compared(settings: object) -> tuple[object, ...]:
    return tuple(getattr(settings, each.name) for each in _fields(settings) if each.compare)


def _fields(settings: object) -> tuple[Field[object], ...]:
    return fields(cast("DataclassInstance", settings))


def declare(
    default: T,
    name: str,
    kind: str,
    doc: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    broker: tuple[tuple[str, int], ...] = (),
    check: Callable[[str], object] | None = None,
    dynamic: bool = False,
) -> T:
    """A dataclass field that carries its `Setting`; typed as its value for the reader and mypy."""
    setting = Setting(name, kind, default, doc, unit, low, high, choices, broker, check, dynamic)
    return field(default=default, metadata={"setting": setting}, repr=kind != "password")


def settings_of(kind: type) -> dict[str, tuple[str, Setting]]:
    """Kafka's name -> (attribute, setting), in the order of the class."""
    found = {}
    for each in fields(kind):
        setting = each.metadata.get("setting")
        if setting is not None:
            found[setting.name] = (each.name, setting)
    return found


def parse_value(setting: Setting, text: str, given: str, factor: int = 1) -> Value:
    """The value of `text` in the setting's own unit. Raises `InvalidConfig`, which names `given` and the value."""
    try:
        value = _PARSERS[setting.kind](text.strip())
    except ValueError:
        raise InvalidConfig(f"{given}={text!r} is not a {setting.kind}") from None
    if isinstance(value, tuple):
        for each in value:
            _check_choice(setting, each, given)
            _check_more(setting, each, given)
    elif isinstance(value, str):
        _check_choice(setting, value, given)
        _check_more(setting, value, given)
    elif not isinstance(value, bool):
        if factor != 1 and value >= 0:
            value = value * factor
        _check_bounds(setting, value, given, text)
        _check_more(setting, text.strip(), given)
    return value


def format_value(value: Value) -> str:
    """The value in the form that Kafka's tools print and `parse_value` reads."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_PARSERS: dict[str, Callable[[str], Value]] = {
    "boolean": _parse_boolean,
    "short": int,
    "int": int,
    "long": int,
    "double": float,
    "string": str,
    "password": str,
    "list": _parse_list,
}
_WIDEST = {"short": (1 << 15) - 1, "int": INT32_MAX, "long": INT64_MAX}


def _check_choice(setting: Setting, value: str, given: str) -> None:
    if setting.choices and value not in setting.choices:
        raise InvalidConfig(f"{given}={value!r} is not one of {', '.join(setting.choices)}")


def _check_more(setting: Setting, value: str, given: str) -> None:
    if setting.check is not None:
        try:
            setting.check(value)
        except ValueError as error:
            raise InvalidConfig(f"{given}={value!r} {error}") from None


def _check_bounds(setting: Setting, value: float, given: str, text: str) -> None:
    widest = _WIDEST.get(setting.kind, float("inf"))
    low = setting.low if setting.low is not None else -widest - 1
    high = setting.high if setting.high is not None else widest
    if not low <= value <= high:
        raise InvalidConfig(f"{given}={text} is out of bounds: the value must be {_bound(low)} to {_bound(high)}")


def _bound(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
