"""GSSAPI of one listener: the broker's keys, and the names of its clients. Imported for such a listener only.

    gssapi.sasl.jaas.config                     principal="kafka/host@REALM", useKeyTab=true, keyTab="/path"
    sasl.kerberos.principal.to.local.rules      see `kerberos_names`

The key table is read at the start, so that a wrong one is told there. Source: Kafka's `SaslChannelBuilder`,
`KerberosLogin`.
"""

from headrace.broker.security.mechanisms import ListenerSettings, login_of, named_jaas
from headrace.config.properties import BROKER_SETTINGS
from headrace.errors import InvalidConfig
from headrace.network.sasl.kerberos import Acceptor
from headrace.security.kerberos_login import server_login
from headrace.security.kerberos_names import SETTING, KerberosNames
from headrace.security.sasl.gssapi import MECHANISM, GssapiServer


class ListenerKerberos:
    """See `mechanisms.Kerberos`."""

    def __init__(self, settings: ListenerSettings) -> None:
        """Reads the key table. Raises `InvalidConfig`."""
        name = settings.named(MECHANISM, "sasl.jaas.config")
        module = login_of(settings, MECHANISM, "GSSAPI but no keys of Kerberos")
        try:
            login = server_login(module)
            self._acceptor = Acceptor(login)
        except InvalidConfig as error:
            raise named_jaas(error, name) from None
        self._names = KerberosNames(_rules(settings), self._acceptor.default_realm())

    def begin(self) -> GssapiServer:
        """See `mechanisms.Kerberos`."""
        return GssapiServer(self._acceptor.context(), self._names.name_of)


def _rules(settings: ListenerSettings) -> tuple[str, ...]:
    """The rules of the listener, or of all listeners."""
    found = settings.names(SETTING)
    default = BROKER_SETTINGS[SETTING][1].default
    assert isinstance(default, tuple)
    return found or default
