"""Settings that Apache Kafka changes while a broker runs and headrace does not, each with the reason.

`config.dynamic` refuses a change of them. Most belong to listeners: Apache Kafka can add a listener to a running
broker, and lets these settings change for the listener that is added, not for those that are open.
"""

from collections.abc import Mapping

_NEW_LISTENERS = "Listeners open when the broker starts, and Apache Kafka changes it for none that is open."
_ADDRESSES = (
    "Listeners open when the broker starts and are registered with their addresses: restart the brokers one by one "
    "(headrace cluster roll)."
)
_JAVA = "It chooses a Java class or provider."
_LOGINS = "It has the timing of logins in Java."

_NAMES: tuple[tuple[str, str], ...] = (
    (_ADDRESSES, "advertised.listeners listener.security.protocol.map listeners"),
    (
        _NEW_LISTENERS,
        "sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name"
        " ssl.cipher.suites ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.protocol",
    ),
    (
        _JAVA,
        "principal.builder.class ssl.engine.factory.class ssl.keymanager.algorithm ssl.provider"
        " ssl.secure.random.implementation ssl.trustmanager.algorithm",
    ),
    (
        _LOGINS,
        "sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter"
        " sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds"
        " sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter",
    ),
    ("It belongs to KRaft, whose controller chooses the directories of new replicas.", "cordoned.log.dirs"),
)

FIXED: Mapping[str, str] = {name: reason for reason, names in _NAMES for name in names.split()}
"""The reason for each setting, by Apache Kafka's name."""
