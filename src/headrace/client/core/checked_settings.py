"""The base of a client's settings: values that are given by any of their names, checked, and never change.

    class ProducerSettings(CheckedSettings, kind="producer"):      `kind`: the part of the table in `options`
        linger_ms: float = 5                                a field, and its default

    ProducerSettings(linger_ms=20).replace(batch_size=1 << 20)

A subclass reads like a frozen dataclass, and type checkers take it for one. It is none since `dataclasses` imports
`inspect`, `ast` and `dis`, and compiles source: a sixth of the time that imports of the producer and the consumer took.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn, TypeVar, dataclass_transform

from headrace.client.core.options import KINDS, check, fields_of

S = TypeVar("S", bound="CheckedSettings")


@dataclass_transform(frozen_default=True)
class CheckedSettings:
    """The settings of one kind. Raises InvalidConfig for an unknown name and for a value out of range."""

    _kind: ClassVar[str]
    _defaults: ClassVar[Mapping[str, Any]]
    _own: ClassVar[frozenset[str]]
    """The fields that the table lacks, such as `tls`: objects."""
    _secret: ClassVar[frozenset[str]] = frozenset()
    """The fields that `repr` leaves out."""

    def __init_subclass__(cls, *, kind: str = "") -> None:
        cls._kind = kind = kind or cls._kind
        fields = {name: vars(cls)[name] for name in cls.__annotations__ if name in vars(cls)}
        cls._defaults = {**getattr(cls, "_defaults", {}), **fields}
        cls._own = frozenset(cls._defaults) - {option.field for option in KINDS[kind]}

    def __init__(self, *values: Any, **given: Any) -> None:
        if len(values) > len(self._defaults):
            raise TypeError(f"{type(self).__name__} has {len(self._defaults)} settings, and {len(values)} were given")
        by_position = dict(zip(self._defaults, values, strict=False))
        by_name = self._fields({**self._defaults, **by_position}, given)
        if twice := by_position.keys() & by_name.keys():
            raise TypeError(f"{type(self).__name__}: {twice.pop()} is given by position and by name")
        self.__dict__.update({**self._defaults, **by_position, **by_name})
        self._check()

    def replace(self: S, **given: Any) -> S:
        """These settings with others, of any of their names, in place of theirs."""
        changed = object.__new__(type(self))
        changed.__dict__.update({**self.__dict__, **self._fields(self.__dict__, given)})
        changed._check()
        return changed

    __replace__ = replace  # for `copy.replace` of Python 3.13

    def _fields(self, held: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """`given` by fields. A setting that is a part of a field, as `times.x`, changes what the field held."""
        fields = {name: value for name, value in given.items() if name in self._own}
        listed = fields_of(self._kind, {name: value for name, value in given.items() if name not in self._own})
        for path, value in listed.items():
            whole, _, part = path.partition(".")
            fields[whole] = fields.get(whole, held[whole])._replace(**{part: value}) if part else value
        return fields

    def _check(self) -> None:
        """Raises InvalidConfig. Subclasses add what depends on several settings."""
        check(KINDS[self._kind], self)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} of {type(self).__name__} cannot be set: settings do not change, see `replace`")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} of {type(self).__name__} cannot be deleted: settings do not change")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.__dict__.items() if name not in self._secret)
        return f"{type(self).__name__}({', '.join(shown)})"
