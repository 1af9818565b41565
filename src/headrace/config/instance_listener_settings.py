"""The settings of how clients reach instances: the listener that many share, and trusted proxies. Apache Kafka has
neither."""

from dataclasses import dataclass

from headrace.config.setting import Settings, declare


# fmt: off
@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class InstanceListenerSettings(Settings):
    """How clients reach instances. `BrokerConfig` has its slots."""

    __slots__ = ()

    instances_domain: str = declare(
        "", "headrace.instances.domain", "string",
        "The domain of the instances' server names: bootstrap is INSTANCE.DOMAIN, a broker is bID.INSTANCE.DOMAIN. "
        "The certificate of headrace.instances.listener has to be for *.DOMAIN and for *.INSTANCE.DOMAIN.")
    instances_listener: str = declare(
        "", "headrace.instances.listener", "string",
        "The listener that instances without a port of their own share; it is not that of brokers. With "
        "headrace.instances.domain it uses TLS, and the server name that a client asks for says which instance it "
        "wants; other names are refused. Without, it uses SASL, and a user INSTANCE.NAME is of that instance. If "
        "empty, there is none.")
    proxy_protocol_trusted: tuple[str, ...] = declare(
        (), "headrace.proxy.protocol.trusted", "list",
        "The addresses and networks (10.0.0.0/8) of load balancers that send a header of the PROXY protocol, version "
        "2, at the beginning of each connection. From these addresses it is required; from others it is refused. Lists "
        "of addresses, limits and rules then apply to the client's address. It applies to all listeners but that of "
        "brokers, if there is more than one.")
