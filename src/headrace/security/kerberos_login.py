"""The login of Kerberos: the options of `com.sun.security.auth.module.Krb5LoginModule` that have a meaning here.

    principal="kafka/host@REALM"     who this process is
    useKeyTab=true keyTab="/path"    its keys; without keyTab the system's (default_keytab_name, KRB5_KTNAME)
    useTicketCache=true              the tickets of kinit, for clients only
    ticketCache="/path"              in another cache than the user's
    serviceName="kafka"              beside sasl.kerberos.service.name, which must not differ

storeKey, doNotPrompt, isInitiator, renewTGT, refreshKrb5Config, useFirstPass and the like are Java's own. Pure.
Source: Krb5LoginModule, Kafka's KerberosLogin.
"""

from typing import NamedTuple

from headrace.errors import InvalidConfig
from headrace.security.jaas import LoginModule

SERVICE_SETTING = "sasl.kerberos.service.name"
_JAAS = "sasl.jaas.config"


class KerberosLogin(NamedTuple):
    """The principal of a process, and where its keys or tickets are."""

    principal: str = ""
    """Empty: that of the tickets."""
    keytab: str | None = None
    """A file with keys; '' for the system's; None for tickets."""
    cache: str = ""
    """Where the tickets are; '' for the user's cache."""


def server_login(module: LoginModule) -> KerberosLogin:
    """The login of a broker, which needs keys. Raises `InvalidConfig`."""
    login = _read(module)
    if login.keytab is None:
        raise InvalidConfig(f'{_JAAS}: a broker needs its keys: set useKeyTab=true and keyTab="/path"')
    name, slash, host = login.principal.partition("@")[0].partition("/")
    if not (name and slash and host):
        raise InvalidConfig(f'{_JAAS}: set principal="SERVICE/HOST@REALM", as which clients know this broker')
    return login


def client_login(module: LoginModule | None) -> KerberosLogin:
    """The login of a client; without a module, the tickets of its user. Raises `InvalidConfig`."""
    if module is None:
        return KerberosLogin()
    login = _read(module)
    if login.keytab is not None and not login.principal:
        raise InvalidConfig(f'{_JAAS}: set principal="NAME@REALM": a key table may have keys of several')
    if login.keytab is None and not _is_true(module, "useTicketCache"):
        raise InvalidConfig(
            f'{_JAAS}: set useKeyTab=true and keyTab="/path", or useTicketCache=true for the tickets of kinit: '
            f"headrace asks for no password"
        )
    return login


def service_name(module: LoginModule | None, setting: str) -> str:
    """The name of the service to connect to. Raises `InvalidConfig`."""
    option = "" if module is None else module.options.get("serviceName", "")
    setting = setting.strip()
    if option and setting and option != setting:
        raise InvalidConfig(f"{SERVICE_SETTING} and serviceName in {_JAAS} differ")
    if not (option or setting):
        raise InvalidConfig(
            f"{SERVICE_SETTING} is not set: it is the part before the / of the brokers' principals, such as kafka"
        )
    return option or setting


def _read(module: LoginModule) -> KerberosLogin:
    options = module.options
    keytab = options.get("keyTab", "")
    if keytab and not _is_true(module, "useKeyTab"):
        raise InvalidConfig(f"{_JAAS}: keyTab has no effect without useKeyTab=true")
    for name in ("principal", "keyTab", "ticketCache"):
        if "\0" in options.get(name, ""):
            raise InvalidConfig(f"{_JAAS}: the option {name} contains NUL")
    is_file = keytab[:5].lower() == "file:"
    return KerberosLogin(
        options.get("principal", ""),
        (keytab[5:] if is_file else keytab) if _is_true(module, "useKeyTab") else None,
        options.get("ticketCache", ""),
    )


def _is_true(module: LoginModule, option: str) -> bool:
    return module.options.get(option, "").lower() == "true"
