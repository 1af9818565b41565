"""Kerberos on a connection to ZooKeeper. The metadata store may not know the network, so it is handed this.

The servers' principals are zookeeper/HOST, with the host as zookeeper.connect names it; serviceName in the login module
names another service, as zookeeper.sasl.client.username does in Java.
"""

from collections.abc import Callable

from headrace.security.jaas import LoginModule
from headrace.security.kerberos_login import client_login, service_name
from headrace.security.sasl.exchange import ClientExchange

_SERVICE = "zookeeper"


def zookeeper_kerberos(module: LoginModule) -> Callable[[str], ClientExchange]:
    """Makes authentications at a host, by a login module of Kerberos. Raises `InvalidConfig`."""
    from headrace.network.sasl.kerberos import Initiator  # loads a library that most brokers do not need
    from headrace.security.sasl.gssapi import GssapiClient

    service = service_name(module, "" if module.options.get("serviceName") else _SERVICE)
    initiator = Initiator(client_login(module), service)
    return lambda host: GssapiClient(initiator.context(host))
