"""Kerberos by the system's library: MIT's, through the package `gssapi`, which the extra `gssapi` installs.

    Acceptor     a broker: the keys of its principal, read from the key table at each authentication, so that new ones
                 count at once; tickets for other principals of the same key table are refused
    Initiator    a client: its tickets come from a key table, and are renewed from it by the library, or from kinit's
                 cache

Calls block: an acceptor reads files, an initiator asks a key distribution centre, within the times of krb5.conf. The
library is loaded at the first use. Errors say what the library says, which has no secrets in it, and what to change.
Source: RFC 2744, RFC 4121, MIT's credential stores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from headrace.errors import AuthenticationFailed, InvalidConfig
from headrace.security.kerberos_login import SERVICE_SETTING, KerberosLogin
from headrace.security.sasl.exchange import Malformed

NEEDED: Final = (
    "GSSAPI needs the package gssapi: pip install 'headrace[gssapi]', for which MIT Kerberos's headers (libkrb5-dev "
    "on Debian, krb5-devel on Fedora) and a C compiler must be there"
)

_KRB5_ERRORS: Final = 1 << 32
_BASE: Final = -1765328384
_HINTS: Final[Mapping[int, str]] = {
    1: "the principal has expired",
    6: "is the principal in sasl.jaas.config spelt right?",  # KDC_ERR_C_PRINCIPAL_UNKNOWN
    7: f"{SERVICE_SETTING} and the host that the broker advertises must make the broker's principal",
    18: "the principal is locked or has expired",
    23: "the principal's password has expired",
    24: "the key table has another key than the realm: export it again (kadmin ktadd)",  # PREAUTH_FAILED
    31: "the key table has another key than the realm: export it again (kadmin ktadd)",  # BAD_INTEGRITY
    32: "the ticket has expired: run kinit, or use a key table",
    37: "set the clocks of this machine, the broker and the key distribution centre",
    156: "is the key distribution centre running, and does krb5.conf (KRB5_CONFIG) name it?",  # KDC_UNREACH
}
"""By the number of an error of krb5 behind its base: what to change. Source: krb5.h."""
_NO_TICKETS: Final = "run kinit, or use a key table (useKeyTab=true) with keys of the principal"


class Acceptor:
    """The keys of a broker. Threads may share it."""

    def __init__(self, login: KerberosLogin) -> None:
        """Raises `InvalidConfig` if the key table cannot be read, or has no key of the principal."""
        self._gssapi = library()
        try:
            name = self._gssapi.Name(login.principal, self._gssapi.NameType.kerberos_principal)
            self._principal = str(name.canonicalize(self._gssapi.MechType.kerberos))
            store = {"keytab": login.keytab} if login.keytab else None
            self._credentials = self._gssapi.Credentials(name=name, usage="accept", store=store)
        except self._gssapi.exceptions.GSSError as error:
            where = login.keytab or "the default key table"
            raise InvalidConfig(f"{where} has no key of {login.principal}: {why(error)}") from None

    def default_realm(self) -> str:
        """That of krb5.conf; '' if there is none."""
        try:
            name = self._gssapi.Name("name", self._gssapi.NameType.kerberos_principal)
            return str(name.canonicalize(self._gssapi.MechType.kerberos)).partition("@")[2]
        except self._gssapi.exceptions.GSSError:
            return ""

    def context(self) -> _AcceptorContext:
        """A new context."""
        return _AcceptorContext(self._gssapi, self._gssapi.SecurityContext(creds=self._credentials, usage="accept"))


class _AcceptorContext:
    """See `gssapi.AcceptorContext`."""

    def __init__(self, gssapi: Any, context: Any) -> None:
        self._gssapi, self._context = gssapi, _undeferred(context)

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    @property
    def client(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes | None) -> bytes:
        try:
            return bytes(self._context.step(token) or b"")
        except self._gssapi.exceptions.GSSError as error:
            raise Malformed(f"Kerberos: {why(error)}") from None

    def wrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.wrap(message, False).message)
        except self._gssapi.exceptions.GSSError as error:
            raise Malformed(f"Kerberos: {why(error)}") from None

    def unwrap(self, wrapped: bytes) -> bytes:
        try:
            return bytes(self._context.unwrap(wrapped).message)
        except self._gssapi.exceptions.GSSError as error:
            raise Malformed(f"Kerberos: {why(error)}") from None


class Initiator:
    """The tickets of a client. Threads may share it."""

    def __init__(self, login: KerberosLogin, service: str) -> None:
        """`service`: the name of the service to connect to. Raises `InvalidConfig` without the library."""
        self._gssapi = library()
        self._login, self._service = login, service
        self._store = _store_of(login)

    def context(self, host: str) -> _InitiatorContext:
        """A new context with the service on a host. May wait for the key distribution centre. Raises
        `AuthenticationFailed` if there is no ticket."""
        gssapi, login = self._gssapi, self._login
        try:
            name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal) if login.principal else None
            credentials = gssapi.Credentials(name=name, usage="initiate", store=self._store)
            target = gssapi.Name(f"{self._service}@{host}", gssapi.NameType.hostbased_service)
            flags = [gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity]
            mechanism = gssapi.MechType.kerberos
            made = gssapi.SecurityContext(name=target, creds=credentials, usage="initiate", flags=flags, mech=mechanism)
        except gssapi.exceptions.GSSError as error:
            self._check_keys()
            who = f" for {login.principal}" if login.principal else ""
            raise AuthenticationFailed(f"there is no ticket of Kerberos{who}: {why(error, _NO_TICKETS)}") from None
        return _InitiatorContext(gssapi, made, f"{self._service}/{host}")

    def _check_keys(self) -> None:
        """Raises `AuthenticationFailed` if the key table cannot be read or has no key of the principal, of which the
        library says only that there are no tickets."""
        if self._login.keytab is not None:
            try:
                Acceptor(self._login)
            except InvalidConfig as error:
                raise AuthenticationFailed(error.message) from None


class _InitiatorContext:
    """See `gssapi.SecurityContext`. Its methods raise `AuthenticationFailed`."""

    def __init__(self, gssapi: Any, context: Any, target: str) -> None:
        self._gssapi, self._context, self._target = gssapi, _undeferred(context), target

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes:
        try:
            return bytes(self._context.step(token) or b"")
        except self._gssapi.exceptions.GSSError as error:
            raise self._failed(error) from None

    def wrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.wrap(message, False).message)
        except self._gssapi.exceptions.GSSError as error:
            raise self._failed(error) from None

    def unwrap(self, wrapped: bytes) -> bytes:
        try:
            return bytes(self._context.unwrap(wrapped).message)
        except self._gssapi.exceptions.GSSError as error:
            raise self._failed(error) from None

    def _failed(self, error: Any) -> AuthenticationFailed:
        return AuthenticationFailed(f"Kerberos with {self._target}: {why(error)}")


def library() -> Any:
    """The package `gssapi`. Raises `InvalidConfig` where it is not installed."""
    try:
        import gssapi
        import gssapi.exceptions
    except (ImportError, OSError):
        raise InvalidConfig(NEEDED) from None
    return gssapi


def why(error: Any, hint: str = "") -> str:
    """What the library says of a `GSSError`, and what to change. `hint`: of an error that has none of its own."""
    said = error.get_all_statuses(error.min_code, False) if error.min_code else ()
    text = " ".join(each for each in said if each) or " ".join(error.get_all_statuses(error.maj_code, True))
    hint = _HINTS.get((error.min_code - _BASE) % _KRB5_ERRORS, hint)
    return f"{text.strip()[:500]}; {hint}" if hint else text.strip()[:500]


def _store_of(login: KerberosLogin) -> dict[str, str] | None:
    """MIT's credential store. Tickets from keys are kept in the memory of this process, for each key table and
    principal, and are renewed by the library."""
    if login.keytab is not None:
        digest = hashlib.sha256(f"{login.keytab}\0{login.principal}".encode()).hexdigest()[:32]
        store = {"ccache": f"MEMORY:headrace-{digest}"}
        return {**store, "client_keytab": login.keytab} if login.keytab else store
    return {"ccache": login.cache} if login.cache else None


def _undeferred(context: Any) -> Any:
    """A context that raises an error at once, also one that has a token for the peer: the peer is told nothing."""
    context.__DEFER_STEP_ERRORS__ = False
    return context
