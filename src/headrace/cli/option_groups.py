"""Options that several commands have, declared once as the fields of a NamedTuple.

class Place(NamedTuple):
    zookeeper: Annotated[str | None, typer.Option(...)] = None
    data: Annotated[Path | None, typer.Option(...)] = None

@app.command()
@with_option_groups
def add(name: Name, place: Place = Place()) -> None: ...       has NAME, --zookeeper and --data
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, get_type_hints

Command = Callable[..., None]


def with_option_groups(command: Command) -> Command:
    """The command with one option for each field of a parameter whose type is a NamedTuple, in its place."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, tuple):
            groups[parameter.name] = kind
            parameters += _options(kind)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def expanded(**given: object) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field: given.pop(field) for field in kind._fields})
        command(**given)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {each.name: each.annotation for each in parameters}
    return expanded


def _options(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in group._field_defaults.items()
    ]
