"""headrace and Apache Kafka with an authorizer and the same rules, for principals with one right or with all but one.

    none               may do nothing
    only-READ-TOPIC    may do one operation, to what `MINE` names
    but-READ-TOPIC     may do everything, but is denied one operation on everything
    all                may do everything
    denied             is allowed everything, and denied everything

A client without SASL is the super user, who makes the rules. The principals come by PLAIN or by their certificate,
through listeners of every protocol.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headrace.network.tls.contexts import client_context
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.security.access import CLUSTER_NAME, Operation, ResourceType, supported_operations
from headrace.security.acls.model import Binding, Entry, Pattern, PatternType, Permission
from tests.asker import Asker
from tests.broker.acl_requests import create
from tests.certificates import client_settings, server_settings
from tests.eventually import eventually
from tests.harness import HeadraceServer, free_ports
from tests.peers import kafka
from tests.peers.node import KafkaNode, ZooKeeper
from tests.rights.requests import MISSING_ID, Names, names
from tests.rotation import day

TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)
RIGHTS = [(operation, kind) for kind in TYPES for operation in supported_operations(kind)]
PRINCIPALS = [
    "none",
    "all",
    "denied",
    *(f"only-{operation.name}-{kind.name}" for operation, kind in RIGHTS),
    *(f"but-{operation.name}-{kind.name}" for operation, kind in RIGHTS),
]
MINE, HIDDEN = names("mine"), names("hidden")
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_USERS = " ".join(f'user_{each}="{each}"' for each in PRINCIPALS)
PROTOCOLS = ("SASL_PLAINTEXT", "SSL", "SASL_SSL")
"""Of the listeners through which the principals come."""
SECURITY = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_LOGIN} {_USERS};",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{_LOGIN} {_USERS};",
    "listener.name.ssl.ssl.client.auth": "required",
    "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
    "group.share.enable": "true",
}


def rules_of(principal: str) -> Iterator[Binding]:
    """The rules for one principal."""
    kind, _, right = principal.partition("-")
    for each in TYPES if kind in ("all", "but", "denied") else ():
        name = CLUSTER_NAME if each is ResourceType.CLUSTER else "*"
        yield _rule(principal, each, name, Operation.ALL, Permission.ALLOW)
        if kind == "denied":
            yield _rule(principal, each, name, Operation.ALL, Permission.DENY)
    if right:
        operation, _, resource = right.rpartition("-")
        of = ResourceType[resource]
        if kind == "but":
            name = CLUSTER_NAME if of is ResourceType.CLUSTER else "*"
            yield _rule(principal, of, name, Operation[operation], Permission.DENY)
        else:
            for name in _named(of):
                yield _rule(principal, of, name, Operation[operation], Permission.ALLOW)


def _named(of: ResourceType) -> tuple[str, ...]:
    return {
        ResourceType.TOPIC: (MINE.topic, MINE.missing_topic),
        ResourceType.GROUP: (MINE.group,),
        ResourceType.CLUSTER: (CLUSTER_NAME,),
        ResourceType.TRANSACTIONAL_ID: (MINE.transactional_id,),
    }[of]


def _rule(principal: str, kind: ResourceType, name: str, operation: Operation, permission: Permission) -> Binding:
    return Binding(Pattern(kind, name, PatternType.LITERAL), Entry(f"User:{principal}", "*", operation, permission))


def protocol_of(principal: str) -> str:
    """The protocol through which a principal comes in this run. Each comes through all of them within three days."""
    return PROTOCOLS[(PRINCIPALS.index(principal) + day()) % len(PROTOCOLS)]


@dataclass
class Secured:
    """A broker whose rules are made."""

    directory: Path
    """Of certificates."""
    addresses: Mapping[str, str]
    """By protocol."""
    versions: dict[int, range]
    topic_ids: dict[str, bytes]
    _askers: dict[tuple[str, str], Asker] = field(default_factory=dict)

    def ask(self, principal: str, request: Message, version: int, protocol: str) -> Any:
        """The answer to a principal; None if the connection is closed instead."""
        key = protocol, principal
        asker = self._askers.get(key)
        if asker is None:
            asker = self._askers[key] = connect(self.directory, self.addresses[protocol], *key)
        try:
            return asker.ask(request, version)
        except (OSError, EOFError, AssertionError):
            self._askers.pop(key).socket.close()
            return None

    def names(self, of: Names) -> Names:
        """The names with the topic's id on this broker."""
        return of._replace(topic_id=self.topic_ids.get(of.topic, MISSING_ID))


def connect(directory: Path, bootstrap: str, protocol: str, user: str) -> Asker:
    """A connection of a user: by a certificate through SSL, by PLAIN through SASL."""
    asker = Asker(bootstrap)
    if protocol.endswith("SSL"):
        settings = client_settings(directory, name=user if protocol == "SSL" else None)
        asker.socket = client_context(settings).wrap_socket(asker.socket, server_hostname="localhost")
    if protocol.startswith("SASL"):
        assert asker.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        answer = asker.ask(m.SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}".encode()), 2)
        assert answer.error_code == 0, answer
    return asker


def listen(port: str) -> tuple[str, dict[str, str]]:
    """The `listeners` of a broker whose plain one is at `port`, and the addresses of the others by protocol."""
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True)}
    each = [f"{name}://{address}" for name, address in addresses.items()]
    return ",".join([f"PLAINTEXT://127.0.0.1:{port}", *each]), addresses


def _is_found(asker: Asker, find: m.FindCoordinatorRequest) -> bool:
    return not asker.ask(find, 4).coordinators[0].error_code


def _made(asker: Asker, request: m.CreateTopicsRequest) -> Any:
    """The answer; None while the controller of Apache Kafka 3.9 knows no broker yet."""
    made = asker.ask(request, 7)
    return made if all(each.error_code == 0 for each in made.topics) else None


def secure(directory: Path, bootstrap: str, addresses: Mapping[str, str], principals: Sequence[str]) -> Secured:
    """Makes topics, coordinators and the rules of principals."""
    with Asker(bootstrap) as asker:
        served = asker.ask(m.ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        wishes = [
            m.CreateTopicsRequest.CreatableTopic(name=each.topic, num_partitions=1, replication_factor=1)
            for each in (MINE, HIDDEN)
        ]
        create_topics = m.CreateTopicsRequest(topics=wishes, timeout_ms=10_000)
        made = eventually(partial(_made, asker, create_topics), "the topics")
        for kind in range(2):
            find = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[MINE.group, HIDDEN.group])
            eventually(partial(_is_found, asker, find), "a coordinator")
        for rule in (rule for each in principals for rule in rules_of(each)):
            # One by one: Apache Kafka 3.9 gives up when it writes a node for many rules at once.
            [(error, text)] = create(asker, rule)
            assert error == 0 or rule.entry.operation is Operation.TWO_PHASE_COMMIT, text  # 3.9 does not know it
        return Secured(
            directory,
            addresses,
            {each.api_key: range(each.min_version, each.max_version + 1) for each in served.api_keys},
            {each.name: each.topic_id for each in made.topics},
        )


@contextmanager
def headrace(directory: Path, principals: Sequence[str] = PRINCIPALS) -> Iterator[Secured]:
    """A headrace."""
    [port] = free_ports(1)
    listeners, addresses = listen(str(port))
    settings = {
        **kafka.SHARED_SETTINGS,
        **SECURITY,
        **server_settings(directory),
        "broker.id": "1",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "listeners": listeners,
    }
    server = HeadraceServer(directory / "headrace", settings, listen=None)
    server.start()
    try:
        yield secure(directory, f"127.0.0.1:{port}", addresses, principals)
    finally:
        server.stop()


@contextmanager
def apache_kafka(directory: Path, principals: Sequence[str] = PRINCIPALS) -> Iterator[Secured]:
    """An Apache Kafka."""
    listeners, addresses = listen("{port}")
    settings: Mapping[str, str] = {
        **kafka.SHARED_SETTINGS,
        **SECURITY,
        **server_settings(directory),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{{controller_port}}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(
            ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *(f"{each}:{each}" for each in PROTOCOLS)]
        ),
    }
    with kafka.run_kafka(directory / "kafka", is_kept=False, settings=settings) as bootstrap:
        yield secure(directory, bootstrap, addresses, principals)


@contextmanager
def apache_kafka_3_9(directory: Path, principals: Sequence[str] = PRINCIPALS) -> Iterator[Secured]:
    """An Apache Kafka 3.9 on ZooKeeper, with its AclAuthorizer."""
    listeners, addresses = listen("@port@")
    settings = {
        **server_settings(directory),
        **{name: value for name, value in SECURITY.items() if "share" not in name},
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "listeners": listeners,
        "advertised.listeners": listeners,
        "inter.broker.listener.name": "PLAINTEXT",
    }
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    with (
        ZooKeeper(directory / "zookeeper") as zookeeper,
        KafkaNode(directory / "kafka-3.9", zookeeper=zookeeper.address, settings=text) as node,
    ):
        yield secure(directory, node.bootstrap, addresses, principals)


Start = Callable[[Path, Sequence[str]], AbstractContextManager[Secured]]


@contextmanager
def both(
    directory: Path, peer: Start = apache_kafka, principals: Sequence[str] = PRINCIPALS
) -> Iterator[tuple[Secured, Secured]]:
    """headrace and Apache Kafka, with the rules of principals."""
    with ExitStack() as stack:
        ours, theirs = headrace(directory, principals), peer(directory, principals)
        yield stack.enter_context(ours), stack.enter_context(theirs)
