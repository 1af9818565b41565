"""HTTP endpoints of identity providers: whom to trust there, and which may be asked at all.

    ssl.* in sasl.jaas.config              TLS with the endpoint, by the names that the options of TLS have; without
                                           them the authorities of the system are trusted
    HEADRACE_ALLOWED_OAUTHBEARER_URLS      in the environment: the only URLs that options may name, separated by commas

The second is for processes that take options from others, who could otherwise have them read any file and ask any
address. It is no option itself, since whoever sets the URL could set it as well. Apache Kafka has a system property for
it, org.apache.kafka.sasl.oauthbearer.allowed.urls, without which Kafka 4 allows none.
Source: Kafka's `JaasOptionsUtils`, `ConfigurationUtils`.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from headrace.config.listener_settings import OVERRIDABLE
from headrace.errors import InvalidConfig

if TYPE_CHECKING:
    from ssl import SSLContext

ALLOWED_URLS: Final = "HEADRACE_ALLOWED_OAUTHBEARER_URLS"

MakeContext = Callable[[], "SSLContext"]


def endpoint_tls(options: Mapping[str, str]) -> MakeContext | None:
    """Makes a context of the `ssl.*` options of a login module, from files as they are then; None without such options.
    Reads the files once. Raises `InvalidConfig`."""
    found = {name: text for name, text in options.items() if name.startswith("ssl.")}
    if not found:
        return None
    unknown = [name for name in found if name not in OVERRIDABLE]
    if unknown:
        raise InvalidConfig(f"sasl.jaas.config: {unknown[0]} is no option of TLS")

    def make() -> "SSLContext":
        from headrace.network.tls.contexts import client_context  # imports ssl

        try:
            return client_context(found)
        except InvalidConfig as error:
            raise InvalidConfig(f"sasl.jaas.config: {error.message}") from None

    make()
    return make


def check_allowed(setting: str, url: str, environ: Mapping[str, str] = os.environ) -> None:
    """Raises `InvalidConfig` for a URL that the environment does not allow. Without its variable, each is allowed."""
    allowed = environ.get(ALLOWED_URLS)
    if allowed is not None and url not in [each.strip() for each in allowed.split(",")]:
        raise InvalidConfig(f"{setting}: the URL is none of those that {ALLOWED_URLS} allows")
