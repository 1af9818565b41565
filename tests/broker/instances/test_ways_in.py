"""The ways into instances, with a broker process and real clients: own ports, TLS and SASL, server names, users."""

import json
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from headrace.broker.instances.ways_in import shared_listener
from headrace.client.core.cluster import Cluster
from headrace.client.operations.instance_admin import InstanceAdmin
from headrace.client.operations.user_admin import UserAdmin
from headrace.config import parse_broker
from headrace.errors import ErrorCode, InvalidConfig
from headrace.metadata.model import Endpoint
from headrace.network.listeners import Listener
from headrace.network.tls.contexts import client_context
from headrace.protocol import messages as m
from headrace.types import BrokerId
from tests.asker import Asker
from tests.broker.test_authentication import authenticate, handshake, serves
from tests.certificates import client_settings, identity, server_settings, write_pem
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import HeadraceServer, free_ports
from tests.network.test_proxy_protocol import proxied
from tests.peers import kafka
from tests.peers.kafka_tools import kafka_tools
from tests.wire import Wire

pytestmark = pytest.mark.slow

DOMAIN = "kafka.test"
NAMES = tuple(
    f"{each}.{DOMAIN}" for each in ("acme", "b0.acme", "zeta", "b0.zeta", "nobody", "b7.acme", "own", "certs", "units")
)
ORGANIZATION = "O=headrace development (not for production)"
OTHER = "127.0.0.2"
PROXY = "127.0.0.3"
REASONS = ("address", "connections_max")


class Hosted:
    """A broker with instances."""

    def __init__(self, directory: Path, listeners: Mapping[str, str], settings: Mapping[str, str]) -> None:
        """`listeners`: name -> protocol; the first is the operator's."""
        self.directory = directory
        self.own = ""
        """The address of an instance with a port."""
        self.ports = dict(zip((*listeners, "metrics"), free_ports(len(listeners) + 1), strict=True))
        own = {
            "listeners": ",".join(f"{name}://127.0.0.1:{self.ports[name]}" for name in listeners),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in listeners.items()),
            "inter.broker.listener.name": next(iter(listeners)),
            "headrace.metrics.listen": f"127.0.0.1:{self.ports['metrics']}",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "connection.failed.authentication.delay.ms": "10",
            **settings,
        }
        self.server = HeadraceServer(directory / "data", own, listen=None).start()

    @property
    def operator(self) -> str:
        """The operator's address."""
        return self.server.bootstrap

    def create(self, name: str, **fields: object) -> str:
        """Creates an instance; its bootstrap address."""
        with Cluster(self.operator) as cluster:
            admin = InstanceAdmin(cluster)
            admin.create_instance(name, fields)
            return admin.await_listeners(name).bootstrap

    def alter(self, name: str, **fields: object) -> None:
        with Cluster(self.operator) as cluster:
            InstanceAdmin(cluster).alter_instance(name, fields)

    def add_user(self, name: str, password: str) -> None:
        with Cluster(self.operator) as cluster:
            UserAdmin(cluster).set_password(name, password)

    def metrics(self, name: str) -> dict[str, float]:
        """The samples of a metric, by their labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['metrics']}/metrics", timeout=60) as answer:
            lines = [each for each in answer.read().decode().splitlines() if each.startswith(name)]
        return {line.rpartition(" ")[0].removeprefix(name): float(line.rpartition(" ")[2]) for line in lines}


def round_trip(options: Mapping[str, Any], topic: str = "orders", value: bytes = b"x") -> tuple[str, bytes]:
    """Produces and consumes one record; the topic and value that came."""
    errors: list[object] = []
    producer = Producer({**options, "message.timeout.ms": 60_000, "error_cb": errors.append})
    producer.produce(topic, value)
    assert producer.flush(60) == 0, errors
    consumer = Consumer({**options, "group.id": "app", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        found = consumer.poll(60)
        assert found is not None
        assert found.error() is None, found.error()
        return str(found.topic()), bytes(found.value() or b"")
    finally:
        consumer.close()


def sasl(bootstrap: str, user: str, password: str, **more: object) -> dict[str, Any]:
    """Options of a client that logs in."""
    return {
        "bootstrap.servers": bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user, "sasl.password": password, **more,
    }  # fmt: skip


def is_refused(options: Mapping[str, Any]) -> bool:
    """Waits for the failure of a client's login, of which its callback hears; whether it is one."""
    errors: list[str] = []
    producer = Producer({**options, "error_cb": lambda error: errors.append(str(error))})
    eventually(lambda: producer.poll(0.01) is None or errors, "an error")
    return "uthentication" in errors[0]


def listed(options: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """The topics and brokers that a client sees."""
    found = AdminClient(dict(options)).list_topics(timeout=60)
    return set(found.topics), {f"{each.host}:{each.port}" for each in found.brokers.values()}


# -- own ports


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    """A broker with users, and certificates."""
    directory = tmp_path_factory.mktemp("own-ports")
    certificate = write_pem(directory / "special.pem", identity("special", hosts=("localhost",)))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    of_special = "listener.name.instances.special."
    settings = {
        f"{of_special}ssl.keystore.location": str(certificate),
        f"{of_special}sasl.enabled.mechanisms": "PLAIN",
        f"{of_special}plain.sasl.jaas.config": f'{module} user_special.alice="wonder";',
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "headrace.instances.listener": "TENANTS",
        "headrace.proxy.protocol.trusted": PROXY,
        **server_settings(directory),
    }
    listeners = {"BROKERS": "PLAINTEXT", "TENANTS": "SASL_PLAINTEXT", "STAFF": "SASL_PLAINTEXT"}
    broker = Hosted(directory, listeners, settings)
    yield broker
    assert broker.server.stop() == 0


def own_name(address: str, directory: Path) -> str:
    """The common name of the certificate that a listener shows."""
    host, _, port = address.rpartition(":")
    context = client_context(client_settings(directory))
    context.check_hostname = False
    with context.wrap_socket(socket.create_connection((host, int(port)), WITHIN_SECONDS)) as found:
        certificate: Any = found.getpeercert()
        return str(dict(each[0] for each in certificate["subject"])["commonName"])


def set_on_broker(broker: Hosted, name: str, value: str) -> None:
    kind = m.IncrementalAlterConfigsRequest
    config = kind.AlterableConfig(name=name, config_operation=0, value=value)
    resource = kind.AlterConfigsResource(resource_type=4, resource_name="0", configs=[config])
    with Asker(broker.operator) as wire:
        answer = wire.ask(kind(resources=[resource]), 1).responses[0]
        assert answer.error_code == 0, answer


def test_an_instance_may_have_a_certificate_and_users_of_its_own(plain: Hosted) -> None:
    ordinary, special = (plain.create(name, protocol="SASL_SSL") for name in ("ordinary", "special"))
    assert own_name(special, plain.directory) == "special"
    assert own_name(ordinary, plain.directory) != "special"
    for address, mechanisms in ((special, ["PLAIN"]), (ordinary, ["SCRAM-SHA-256", "SCRAM-SHA-512"])):
        wire = Wire(address)
        context = client_context(client_settings(plain.directory))
        context.check_hostname = False
        wire.socket = context.wrap_socket(wire.socket)
        with wire:
            if address == special:
                assert handshake(wire) == (0, mechanisms)
                assert authenticate(wire, b"\0alice\0wonder").error_code == 0
                assert serves(wire)
            else:
                assert handshake(wire) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms)


def test_a_certificate_of_its_own_is_set_while_the_broker_runs(plain: Hosted) -> None:
    address = plain.create("later", protocol="SSL")
    assert own_name(address, plain.directory) != "special"
    name = "listener.name.instances.later.ssl.keystore.location"
    set_on_broker(plain, name, str(plain.directory / "special.pem"))

    def is_shown() -> bool:
        try:
            return own_name(address, plain.directory) == "special"
        except ConnectionError:  # its port closes for the moment in which it is opened anew
            return False

    eventually(is_shown, "its certificate")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_two_instances_have_topics_and_groups_of_the_same_name(plain: Hosted, protocol: str) -> None:
    options = {"security.protocol": protocol, "ssl.ca.location": str(plain.directory / "ca.pem")}
    for name in (f"one-{protocol.lower()}", f"two-{protocol.lower()}"):
        bootstrap = plain.create(name, protocol=protocol)
        own = {**options, "bootstrap.servers": bootstrap.replace("127.0.0.1", "localhost")}
        assert round_trip(own, value=name.encode()) == ("orders", name.encode())
        assert listed(own) == ({"orders"}, {bootstrap})


def test_users_of_an_instance_say_their_names_without_it(plain: Hosted) -> None:
    bootstrap = plain.create("users", protocol="SASL_PLAINTEXT", admins=["alice"])
    plain.create("others", protocol="SASL_PLAINTEXT")
    plain.add_user("users.alice", "wonder")
    plain.add_user("others.bob", "builder")
    plain.add_user("staff", "secret")
    assert round_trip(sasl(bootstrap, "alice", "wonder"))[0] == "orders"
    for user, password in (
        ("users.alice", "wonder"), ("others.bob", "builder"), ("bob", "builder"), ("staff", "secret"), ("alice", "x"),
    ):  # fmt: skip
        assert is_refused(sasl(bootstrap, user, password)), user


def test_a_user_says_which_instance_it_is_of_at_the_shared_listener(plain: Hosted) -> None:
    plain.create("shared", port=None)
    plain.create("elsewhere")
    tenants, staff = (f"127.0.0.1:{plain.ports[name]}" for name in ("TENANTS", "STAFF"))
    for user in ("shared.alice", "elsewhere.alice", "nobody.alice", "operator"):
        plain.add_user(user, "wonder")
    eventually(lambda: plain_endpoints(plain, "shared"), "the address of the instance")
    alice = sasl(tenants, "shared.alice", "wonder")
    assert round_trip(alice)[0] == "orders"
    assert listed(alice) == ({"orders"}, {tenants})
    assert "shared.orders" in listed(sasl(tenants, "operator", "wonder"))[0], "the operator sees everything"
    for user, why in (
        ("elsewhere.alice", "its instance has a port of its own"),
        ("nobody.alice", "it may be of an instance that was deleted"),
    ):
        assert is_refused(sasl(tenants, user, "wonder")), why
    assert "shared.orders" in listed(sasl(staff, "operator", "wonder"))[0]
    assert listed(sasl(staff, "nobody.alice", "wonder"))[0], "a name with a dot, of an ordinary user"
    assert is_refused(sasl(staff, "shared.alice", "wonder")), "it would see everything"


def plain_endpoints(broker: Hosted, name: str) -> Mapping[BrokerId, str]:
    with Cluster(broker.operator) as cluster:
        return InstanceAdmin(cluster).describe_instances([name])[0].endpoints


def test_lists_and_limits_hold_and_are_counted(plain: Hosted) -> None:
    bootstrap = plain.create("listed", deny=[OTHER, "192.0.2.0/24"], connections_max=2)
    port = int(bootstrap.rpartition(":")[2])

    def open_from(local: str, header: bytes = b"") -> Asker:
        asker = Asker(plain.operator)
        asker.socket.close()
        asker.socket = socket.create_connection(("127.0.0.1", port), WITHIN_SECONDS, (local, 0))
        asker.socket.sendall(header)
        return asker

    def serves(asker: Asker) -> bool:
        try:
            return bool(asker.ask(m.ApiVersionsRequest(), 0).error_code == 0)
        except (ConnectionError, AssertionError):
            return False

    assert not serves(open_from(OTHER))
    with open_from("127.0.0.1") as stays, open_from(PROXY, proxied("198.51.100.7", 5)) as goes:
        assert serves(stays)
        assert serves(goes)
        assert not serves(open_from("127.0.0.1")), "there are two"
        assert not serves(open_from(PROXY, proxied("192.0.2.7", 5)))
        assert not serves(open_from(PROXY)), "a proxy sends a header"
        assert not serves(open_from("127.0.0.1", proxied("198.51.100.7", 5))), "others must not send one"
        counted = plain.metrics("headrace_instance_connections")
        assert counted['{instance="listed"}'] == 2
        refused = {reason: counted[f'_refused_total{{instance="listed",reason="{reason}"}}'] for reason in REASONS}
        assert refused == {"address": 2, "connections_max": 2}
        plain.alter("listed", deny=["198.51.100.0/24"])
        goes.socket.settimeout(WITHIN_SECONDS)
        assert goes.socket.recv(1) == b"", "it is closed"
        assert serves(stays)


@pytest.mark.peer
@pytest.mark.xdist_group("apache-kafka")
def test_apache_kafka_s_tools_use_a_listener_that_was_opened_while_the_broker_ran(
    plain: Hosted, tmp_path: Path
) -> None:
    bootstrap = plain.create("java")
    with kafka_tools(tmp_path) as tools:
        tool = "org.apache.kafka.tools"
        at = ("--bootstrap-server", bootstrap)
        said = tools.run(f"{tool}.TopicCommand", *at, "--create", "--topic", "made", "--partitions", "2")
        assert "Created topic made" in said
        assert tools.run(f"{tool}.TopicCommand", *at, "--list").split()[0] == "made"
    assert {"made"} == listed({"bootstrap.servers": bootstrap})[0]
    assert "java.made" in listed({"bootstrap.servers": plain.operator})[0]


def test_ports_stay_the_same_over_a_restart(plain: Hosted) -> None:
    before = plain.create("lasting")
    with Cluster(plain.operator) as cluster:
        assert InstanceAdmin(cluster).await_listeners("lasting").bootstrap == before
    assert plain.server.stop() == 0
    plain.server.restart()
    with Cluster(plain.operator) as cluster:
        assert InstanceAdmin(cluster).await_listeners("lasting").bootstrap == before
    assert listed({"bootstrap.servers": before})[1] == {before}


# -- server names


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    """A broker whose instances share a TLS port."""
    directory = tmp_path_factory.mktemp("server-names")
    certificate = write_pem(directory / "tenants.pem", identity("tenants", hosts=(*NAMES, "localhost")))
    settings = {
        **server_settings(directory),
        "ssl.keystore.location": str(certificate),
        "ssl.client.auth": "requested",
        "headrace.instances.listener": "TENANTS",
        "headrace.instances.domain": DOMAIN,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    broker = Hosted(directory, {"BROKERS": "PLAINTEXT", "TENANTS": "SSL"}, settings)
    try:
        broker.create("acme", port=None, deny=[OTHER], admins=["ANONYMOUS"])
        broker.create("zeta", port=None, admins=["ANONYMOUS"])
        broker.create("certs", port=None, admins=[f"CN=eve,{ORGANIZATION}"])
        broker.create("units", port=None, principals=[f"CN=tea*,{ORGANIZATION}"], protocol="SSL")
        broker.create("own")
        for name in ("acme", "zeta", "certs", "units"):
            eventually(lambda: plain_endpoints(broker, name), "the address of the instance")  # noqa: B023
        yield broker
    finally:
        assert broker.server.stop() == 0


def hello(broker: Hosted, name: str | None, local: str = "127.0.0.1", user: str | None = None) -> Asker:
    """A connection that asks for a server name; with a `user` it has a certificate. Raises `ssl.SSLError`."""
    context = client_context(client_settings(broker.directory, name=user))
    context.check_hostname = False
    sock = socket.create_connection(("127.0.0.1", broker.ports["TENANTS"]), WITHIN_SECONDS, (local, 0))
    asker = Asker(broker.operator)
    asker.socket.close()
    try:
        asker.socket = context.wrap_socket(sock, server_hostname=name)
    except BaseException:
        sock.close()
        raise
    return asker


@pytest.mark.parametrize("name", [f"acme.{DOMAIN}", f"b0.acme.{DOMAIN}", f"ACME.{DOMAIN.upper()}"])
def test_the_server_name_chooses_the_instance(named: Hosted, name: str) -> None:
    with hello(named, name) as asker:
        answer = asker.ask(m.MetadataRequest(topics=[]), 9)
        assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
            (0, f"b0.acme.{DOMAIN}", named.ports["TENANTS"])
        ]
        counted = named.metrics("headrace_instance_connections")
        assert counted['{instance="acme"}'] >= 1


@pytest.mark.parametrize(("user", "code"), [
    ("eve", ErrorCode.NONE),
    (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
])  # fmt: skip
def test_the_user_of_a_certificate_is_one_of_the_instance(named: Hosted, user: str | None, code: ErrorCode) -> None:
    """The administrator of the instance is CN=eve; the super user ANONYMOUS is one of the operator's."""
    topic = m.CreateTopicsRequest.CreatableTopic(name="made", num_partitions=1, replication_factor=1)
    with hello(named, f"certs.{DOMAIN}", user=user) as asker:
        answer = asker.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=True), 5)
        assert [each.error_code for each in answer.topics] == [code]


@pytest.mark.parametrize(("instance", "user"), [
    ("certs", "mallory"), ("acme", "eve"), ("zeta", "mallory"), ("units", "eve"), ("units", "my-tea"), ("units", None),
])  # fmt: skip
def test_a_certificate_of_the_same_authority_opens_no_other_instance(
    named: Hosted, instance: str, user: str | None
) -> None:
    """It names nobody who may enter, and it is closed before it is served."""
    before = refused_principals(named, instance)
    with hello(named, f"{instance}.{DOMAIN}", user=user) as asker, pytest.raises((ConnectionError, EOFError, OSError)):
        asker.ask(m.MetadataRequest(topics=[]), 9)
    assert refused_principals(named, instance) == before + 1


def refused_principals(broker: Hosted, instance: str) -> float:
    counted = broker.metrics("headrace_instance_connections_refused_total")
    return counted.get(f'{{instance="{instance}",reason="principal"}}', 0)


def test_a_principal_that_is_allowed_no_more_is_closed(named: Hosted) -> None:
    with hello(named, f"units.{DOMAIN}", user="tea-1") as stays, hello(named, f"units.{DOMAIN}", user="tea-2") as goes:
        for each in (stays, goes):
            each.ask(m.MetadataRequest(topics=[]), 9)
        named.alter("units", principals=[f"User:CN=tea-1,{ORGANIZATION}"])
        goes.socket.settimeout(WITHIN_SECONDS)
        assert goes.socket.recv(1) == b""
        stays.ask(m.MetadataRequest(topics=[]), 9)
    named.alter("units", principals=[f"CN=tea*,{ORGANIZATION}"])


def test_names_that_are_not_served_cannot_be_told_apart(named: Hosted) -> None:
    refused = set()
    for name, local in (
        (f"nobody.{DOMAIN}", "127.0.0.1"),
        (f"b7.acme.{DOMAIN}", "127.0.0.1"),
        (f"b0.b0.acme.{DOMAIN}", "127.0.0.1"),
        (f"own.{DOMAIN}", "127.0.0.1"),
        (DOMAIN, "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        (None, "127.0.0.1"),
        (f"acme.{DOMAIN}", OTHER),
    ):
        with pytest.raises(ssl.SSLError) as failed:
            hello(named, name, local)
        refused.add(failed.value.reason)
    assert len(refused) == 1, refused
    assert "UNRECOGNIZED_NAME" in refused.pop()
    eventually(
        lambda: named.metrics("headrace_instance_connections_refused_total")['{instance="acme",reason="address"}'] == 1,
        "the refused address to be counted",
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    """A broker whose instances share a port with TLS and SASL."""
    directory = tmp_path_factory.mktemp("both")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        **server_settings(directory),
        "sasl.enabled.mechanisms": "PLAIN",
        "connections.max.reauth.ms": "3600000",
        "listener.name.tenants.plain.sasl.jaas.config": f'{module} user_acme.alice="wonder" user_alice="staff";',
        "headrace.instances.listener": "TENANTS",
        "headrace.instances.domain": DOMAIN,
    }
    broker = Hosted(directory, {"BROKERS": "PLAINTEXT", "TENANTS": "SASL_SSL"}, settings)
    try:
        broker.create("acme", port=None)
        broker.own = broker.create("own", protocol="SASL_SSL")
        broker.add_user("acme.bob", "builder")
        broker.add_user("own.bob", "owner")
        yield broker
    finally:
        assert broker.server.stop() == 0


def wire_at(broker: Hosted, instance: str) -> Wire:
    """A connection to an instance, before it logs in."""
    address = broker.own if instance == "own" else f"127.0.0.1:{broker.ports['TENANTS']}"
    wire = Wire(address)
    context = client_context(client_settings(broker.directory))
    context.check_hostname = False
    wire.socket = context.wrap_socket(wire.socket, server_hostname=f"{instance}.{DOMAIN}")
    return wire


@pytest.mark.parametrize(("instance", "user", "password"), [
    ("acme", "alice", "wonder"), ("acme", "bob", "builder"), ("own", "bob", "owner"),
])  # fmt: skip
def test_users_of_plain_are_configured_or_stored_and_log_in_again(
    both: Hosted, instance: str, user: str, password: str
) -> None:
    with wire_at(both, instance) as wire:
        for _ in range(2):
            assert handshake(wire) == (0, ["PLAIN"])
            done = authenticate(wire, f"\0{user}\0{password}".encode())
            assert (done.error_code, done.session_lifetime_ms) == (0, 3_600_000)
            assert serves(wire)


@pytest.mark.parametrize(("instance", "user", "password"), [
    ("acme", "alice", "staff"), ("acme", "bob", "owner"), ("acme", "acme.alice", "wonder"),
    ("acme", "own.bob", "owner"), ("own", "bob", "builder"), ("own", "alice", "wonder"), ("own", "nobody", "x"),
])  # fmt: skip
def test_passwords_of_other_instances_and_of_the_operator_are_wrong(
    both: Hosted, instance: str, user: str, password: str
) -> None:
    with wire_at(both, instance) as wire:
        assert handshake(wire) == (0, ["PLAIN"])
        failed = authenticate(wire, f"\0{user}\0{password}".encode())
        assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert failed.error_message == "Authentication failed: Invalid username or password"


CLIENT = """
import json, sys
from confluent_kafka import Consumer, Producer
options = json.loads(sys.argv[1])
producer = Producer(options)
producer.produce("orders", sys.argv[2].encode())
assert producer.flush(60) == 0
consumer = Consumer({**options, "group.id": "app", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
found = consumer.poll(60)
print(found.topic(), found.value().decode())
consumer.close()
"""


def test_confluent_kafka_goes_by_server_names(named: Hosted, tmp_path: Path) -> None:
    """In a mount namespace of its own, with a hosts file that has the names."""
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {' '.join(NAMES)}\n")
    inside = f'mount --bind {hosts} /etc/hosts && exec "$@"'
    prefix = ["unshare", "-r", "-m", "sh", "-c", inside, "sh"]
    try:
        subprocess.run([*prefix, "true"], check=True, capture_output=True, timeout=WITHIN_SECONDS)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine lets no process have a hosts file of its own")
    for name in ("acme", "zeta"):
        options = {
            "bootstrap.servers": f"{name}.{DOMAIN}:{named.ports['TENANTS']}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(named.directory / "ca.pem"),
        }
        command = [*prefix, sys.executable, "-c", CLIENT, json.dumps(options), name]
        done = subprocess.run(command, capture_output=True, timeout=WITHIN_SECONDS, check=False, text=True)
        assert done.stdout.split() == ["orders", name], done.stderr


@pytest.mark.peer
@pytest.mark.xdist_group("apache-kafka")
def test_apache_kafka_s_tools_go_by_server_names(named: Hosted, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {' '.join(NAMES)}\n")
    options = tmp_path / "client.properties"
    options.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={named.directory / 'ca.pem'}\n"
    )
    java = kafka.java_command(tmp_path, "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Djdk.net.hosts.file={hosts}")
    with kafka_tools(tmp_path, java) as tools:
        at = ("--bootstrap-server", f"zeta.{DOMAIN}:{named.ports['TENANTS']}", "--command-config", str(options))
        tool = "org.apache.kafka.tools.TopicCommand"
        assert "Created topic made" in tools.run(tool, *at, "--create", "--topic", "made")
        assert "made" in tools.run(tool, *at, "--list").split()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"headrace.instances.listener": "NOWHERE"}, "NOWHERE is not in listeners"),
        ({"headrace.instances.listener": "B"}, "is the listener of brokers"),
        ({"headrace.instances.listener": "A"}, "set headrace.instances.domain"),
        ({"headrace.instances.listener": "A", "headrace.instances.domain": DOMAIN}, "needs TLS"),
        ({"headrace.instances.domain": DOMAIN}, "set headrace.instances.listener"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, str], why: str) -> None:
    listeners = (Listener("A", "127.0.0.1", 1), Listener("B", "127.0.0.1", 2))
    endpoints = tuple(Endpoint(*each) for each in listeners)
    with pytest.raises(InvalidConfig, match=why):
        shared_listener(parse_broker(settings), listeners, endpoints, lambda name: name == "B")


def test_a_broker_does_not_start_with_a_proxy_that_is_no_network(tmp_path: Path) -> None:
    server = HeadraceServer(tmp_path / "data", {"headrace.proxy.protocol.trusted": "10.0.0.1/8"})
    with pytest.raises(RuntimeError, match=r"headrace\.proxy\.protocol\.trusted: '10\.0\.0\.1/8' has host bits set"):
        server.start()
