"""Request handlers, one module per API: its versions, what each version added, what is left out, and the handler.

May know the request context and all services of the broker. Begin with `heartbeat`, which shows the form of a handler;
`produce` and `fetch` are the hot path. A module has the name of its API key, and is imported at its first request.
`index` lists the APIs served; it is generated from the modules by `make generate`.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from headrace.broker.handlers.index import VERSIONS
from headrace.protocol.apis import ApiKey

_NO_HANDLERS = ("index",)


def advertised(*, has_telemetry: bool = True) -> tuple[tuple[ApiKey, range], ...]:
    """Returns each API with the versions that ApiVersions advertises; this broker serves all of them, and headrace's
    own.

    Clients push metrics to every broker that names the two APIs of telemetry, wanted or not.
    """
    hidden = () if has_telemetry else (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
    return tuple((key, versions) for key, versions in VERSIONS.items() if key not in hidden and not key.is_own)


def module_of(api_key: ApiKey) -> ModuleType:
    """The handler of an API that is served."""
    return import_module(f"{__name__}.{api_key.name.lower()}")


@cache
def all_modules() -> tuple[ModuleType, ...]:
    """Every handler, in the order of the API keys. Imports them all."""
    names = (each.name for each in iter_modules(__path__) if each.name not in _NO_HANDLERS)
    return tuple(sorted((import_module(f"{__name__}.{name}") for name in names), key=lambda module: module.API_KEY))
