"""A login: Kafka's `sasl.*` options, checked once, and a mechanism for each connection.

    sasl.mechanism            PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI
    sasl.jaas.config          PLAIN and SCRAM: username, password; tokenauth="true" for a delegation token
    sasl.oauthbearer.*        see `bearer_tokens`
    sasl.kerberos.*           see `kerberos_login`

Errors name the option, never its value.
"""

import os
from collections.abc import Callable, Mapping

from headrace.errors import InvalidConfig
from headrace.network.sasl.bearer_tokens import TokenSource, token_source
from headrace.security.jaas import LoginModule, login_module
from headrace.security.kerberos_login import SERVICE_SETTING, client_login, service_name
from headrace.security.sasl import scram
from headrace.security.sasl.exchange import ClientExchange
from headrace.security.sasl.gssapi import MECHANISM as GSSAPI
from headrace.security.sasl.gssapi import GssapiClient
from headrace.security.sasl.oauthbearer import MECHANISM as OAUTHBEARER
from headrace.security.sasl.oauthbearer import OAuthBearerClient
from headrace.security.sasl.plain import MECHANISM as PLAIN
from headrace.security.sasl.plain import PlainClient
from headrace.security.sasl.scram_client import KeyCache, ScramClient

KNOWN = (PLAIN, *scram.HASHES, OAUTHBEARER, GSSAPI)


class Login:
    """The credentials of one client. Threads may share it."""

    def __init__(self, mechanism: str, make: Callable[[str], ClientExchange]) -> None:
        self.mechanism = mechanism
        self._make = make

    def __repr__(self) -> str:
        return f"Login({self.mechanism})"

    def client(self, host: str) -> ClientExchange:
        """The client's side of an exchange with a broker on `host`. May wait for a token or a ticket. Raises
        `AuthenticationFailed` if there is none."""
        return self._make(host)


def login_of(sasl: Mapping[str, str]) -> Login:
    """The login of `sasl.*` options, with their full names. Raises `InvalidConfig`."""
    mechanism = sasl.get("sasl.mechanism", "").strip()
    if mechanism not in KNOWN:
        what = f"{mechanism!r}, which headrace does not have" if mechanism else "not set"
        raise InvalidConfig(f"sasl.mechanism is {what}: use one of {', '.join(KNOWN)}")
    jaas = sasl.get("sasl.jaas.config", "")
    if mechanism == OAUTHBEARER:
        module = login_module(jaas, mechanism) if jaas.strip() else LoginModule("", {})
        return _bearer(token_source(sasl, module.options), _extensions(module))
    if mechanism == GSSAPI:
        return _kerberos(login_module(jaas, mechanism) if jaas.strip() else None, sasl.get(SERVICE_SETTING, ""))
    if not jaas.strip():
        raise InvalidConfig(f"sasl.jaas.config is not set: {mechanism} needs a username and a password in it")
    module = login_module(jaas, mechanism)
    name, password = _needed(module, "username"), _needed(module, "password")
    if mechanism == PLAIN:
        return Login(PLAIN, lambda _host: PlainClient(name, password))
    is_token = module.options.get("tokenauth", "").lower() == "true"
    keys: KeyCache = {}

    def make(_host: str) -> ClientExchange:
        nonce = scram.new_nonce(os.urandom(scram.NONCE_BYTES))
        return ScramClient(mechanism, name, password, nonce, is_token=is_token, keys=keys)

    return Login(mechanism, make)


def _bearer(source: TokenSource, extensions: Mapping[str, str]) -> Login:
    return Login(OAUTHBEARER, lambda _host: OAuthBearerClient(source.token(), extensions))


def _kerberos(module: LoginModule | None, service_setting: str) -> Login:
    """Tickets of Kerberos. Raises `InvalidConfig`."""
    from headrace.network.sasl.kerberos import Initiator

    initiator = Initiator(client_login(module), service_name(module, service_setting))
    return Login(GSSAPI, lambda host: GssapiClient(initiator.context(host)))


def _extensions(module: LoginModule) -> dict[str, str]:
    """SASL extensions: `extension_NAME="..."`. Raises `InvalidConfig`."""
    prefix = "extension_"
    found = {name[len(prefix) :]: value for name, value in module.options.items() if name.startswith(prefix)}
    try:
        OAuthBearerClient("token", found)
    except ValueError as error:
        raise InvalidConfig(f"sasl.jaas.config: {error}") from None
    return found


def _needed(module: LoginModule, option: str) -> str:
    value = module.options.get(option, "")
    if not value or "\0" in value:
        what = "contains NUL" if value else "is not set"
        raise InvalidConfig(f"sasl.jaas.config: the option {option} {what}")
    return value
