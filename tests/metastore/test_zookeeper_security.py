"""TLS both ways, users and access control lists, and what is said when they do not fit; on a real ZooKeeper."""

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE

from headrace.broker.open_metastore import open_ensemble
from headrace.broker.options import StartRefused
from headrace.cli.main import main as headrace
from headrace.config import BrokerConfig
from headrace.errors import InvalidConfig
from headrace.metadata import znodes
from headrace.metadata.model import Broker
from headrace.metadata.registry import ensure_cluster, register_broker
from headrace.metastore.store import Create, NotAllowed
from headrace.metastore.zookeeper.ensemble import ensemble_of
from headrace.metastore.zookeeper.secured_client import make_client
from headrace.network.zookeeper_kerberos import zookeeper_kerberos
from headrace.network.zookeeper_tls import zookeeper_context
from headrace.types import BrokerId
from tests.certificates import keytool
from tests.harness import free_ports
from tests.zookeeper_server import ZooKeeperServer, missing_tools

pytestmark = [pytest.mark.slow, pytest.mark.peer]
SECRET = "s3cret"


def make_certificate(directory: Path, name: str) -> Path:
    """A self-signed PEM of key and certificate for 127.0.0.1, and beside it NAME.crt."""
    key, certificate, both = (directory / f"{name}.{kind}" for kind in ("key", "crt", "pem"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    directory = tmp_path_factory.mktemp("certificates")
    for name in ("server", "broker", "stranger"):
        make_certificate(directory, name)
    return directory


@pytest.fixture(scope="module")
def tls_server(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that wants a client's certificate."""
    if reason := missing_tools():
        pytest.skip(reason)
    (port,) = free_ports(1)
    settings = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(certificates / "server.pem"),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(certificates / "broker.crt"),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
        "ssl.hostnameVerification": "false",
    }
    with ZooKeeperServer(tmp_path_factory.mktemp("tls"), settings=settings):
        yield f"127.0.0.1:{port}"


@pytest.fixture
def tls_config(tls_server: str, certificates: Path) -> BrokerConfig:
    return BrokerConfig(
        zookeeper_connect=f"{tls_server}/tls/{uuid4()}",
        zookeeper_ssl_client_enable=True,
        zookeeper_ssl_keystore_location=str(certificates / "broker.pem"),
        zookeeper_ssl_truststore_location=str(certificates / "server.crt"),
        zookeeper_connection_timeout_ms=20_000,
    )


async def test_a_tree_over_tls_reads_thousands_of_nodes(tls_config: BrokerConfig) -> None:
    store = await open_ensemble(tls_config)
    await store.create("/n")
    for start in range(0, 3000, 500):
        await store.multi([Create(f"/n/{n}", b"x" * 200) for n in range(start, start + 500)])
    found = await store.get_many([f"/n/{n}" for n in range(3000)])
    assert None not in found
    assert len(await store.children("/n")) == 3000
    await store.close()


async def test_who_is_not_known_by_certificate_gets_no_session(tls_config: BrokerConfig, certificates: Path) -> None:
    for wrong, said in (
        ({"zookeeper_ssl_keystore_location": str(certificates / "stranger.pem")}, "no server answered|failed"),
        ({"zookeeper_ssl_keystore_location": ""}, "no server answered|failed"),
        ({"zookeeper_ssl_truststore_location": str(certificates / "stranger.crt")}, "failed: self-signed certificate"),
        ({"zookeeper_ssl_client_enable": False}, "no server answered within 1.5 s"),
    ):
        config = replace(tls_config, zookeeper_connection_timeout_ms=1500, **wrong)
        with pytest.raises(StartRefused, match=rf"zookeeper.connect=127.0.0.1:\d+/tls/.*({said})"):
            await open_ensemble(config)


@pytest.fixture
def java_stores(certificates: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A PKCS12 key store of the broker, and a JKS trust store."""
    keys, trusted = tmp_path / "keys.p12", tmp_path / "trust.jks"
    export = ["openssl", "pkcs12", "-export", "-in", str(certificates / "broker.pem"), "-out", str(keys)]
    subprocess.run([*export, "-passout", f"pass:{SECRET}"], check=True, capture_output=True)
    certificate = ("-file", str(certificates / "server.crt"))
    keytool("-importcert", "-alias", "ca", *certificate, "-keystore", str(trusted), "-storetype", "JKS", "-storepass",
            SECRET)  # fmt: skip
    return keys, trusted


async def test_key_stores_of_java_are_read(tls_config: BrokerConfig, java_stores: tuple[Path, Path]) -> None:
    config = replace(
        tls_config,
        zookeeper_ssl_keystore_location=str(java_stores[0]),
        zookeeper_ssl_keystore_password=SECRET,
        zookeeper_ssl_truststore_location=str(java_stores[1]),
        zookeeper_ssl_truststore_password=SECRET,
    )
    store = await open_ensemble(config)
    await store.close()
    with pytest.raises(InvalidConfig, match=r"zookeeper.ssl.keystore.location=.*keystore.password is wrong") as caught:
        await open_ensemble(replace(config, zookeeper_ssl_keystore_password="hunter2"))
    assert "hunter2" not in caught.value.message


async def test_a_certificate_owns_the_znodes(tls_config: BrokerConfig) -> None:
    config = replace(tls_config, zookeeper_set_acl=True)
    store = await open_ensemble(config)
    await ensure_cluster(store)
    client = make_client(ensemble_of(config, zookeeper_context, zookeeper_kerberos))
    client.chroot = "/" + config.zookeeper_connect.partition("/")[2]
    client.start()
    assert [each.id.scheme for each in client.get_acls("/config/users")[0]] == ["x509"]
    client.stop()
    client.close()
    await store.close()


def test_a_migration_speaks_as_its_file_says(
    tls_config: BrokerConfig, tls_server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fill() -> str:
        store = await open_ensemble(tls_config)
        cluster_id = await ensure_cluster(store)
        await store.close()
        return cluster_id

    cluster_id = asyncio.run(fill())
    properties = tmp_path / "server.properties"
    properties.write_text(
        "zookeeper.ssl.client.enable=true\nlog.dirs=/passed/over\nno.such.setting=1\n"
        f"zookeeper.ssl.keystore.location={tls_config.zookeeper_ssl_keystore_location}\n"
        f"zookeeper.ssl.truststore.location={tls_config.zookeeper_ssl_truststore_location}\n"
        f"headrace.zookeeper.digest=brokers:{SECRET}\nzookeeper.set.acl=true\n"
    )
    config, saved = ("--zookeeper-config", str(properties)), str(tmp_path / "tree.json")
    assert headrace(["migrate", "save-tree", saved, "--zookeeper", tls_config.zookeeper_connect, *config]) == 0
    there = f"{tls_server}/loaded-{uuid4()}"
    assert headrace(["migrate", "load-tree", saved, "--zookeeper", there, *config]) == 0
    assert cluster_id in capsys.readouterr().out

    chroot = there.partition("/")[2]
    client = make_client(ensemble_of(tls_config, zookeeper_context, zookeeper_kerberos))
    client.chroot = f"/{chroot}"
    client.start()
    assert cluster_id.encode() in client.get(znodes.CLUSTER_ID)[0]
    rights = {acl.id.scheme: acl.acl_list for acl in client.get_acls(znodes.CLUSTER_ID)[0]}
    client.stop()
    client.close()
    assert rights == {"digest": ["ALL"], "x509": ["ALL"], "world": ["READ"]}
    properties.write_text("zookeeper.ssl.client.enable=true\nzookeeper.ssl.keystore.location=/nowhere\n")
    assert headrace(["migrate", "load-tree", saved, "--zookeeper", there, *config]) == 1
    assert "zookeeper.ssl.keystore.location=/nowhere: No such file" in capsys.readouterr().err


async def test_files_that_hold_no_keys_are_named(tls_config: BrokerConfig, tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(b"no store")
    with pytest.raises(InvalidConfig, match=r"zookeeper.ssl.keystore.location=.*store.jks: .* neither PEM nor PKCS12"):
        await open_ensemble(replace(tls_config, zookeeper_ssl_keystore_location=str(store)))
    with pytest.raises(InvalidConfig, match=r"zookeeper.ssl.truststore.location=/nowhere: No such file"):
        await open_ensemble(replace(tls_config, zookeeper_ssl_truststore_location="/nowhere"))


@pytest.fixture
def secured(zookeeper_server: ZooKeeperServer) -> BrokerConfig:
    return BrokerConfig(
        zookeeper_connect=f"{zookeeper_server.address}/acl-{uuid4()}",
        zookeeper_digest=f"brokers:{SECRET}",
        zookeeper_set_acl=True,
        zookeeper_connection_timeout_ms=20_000,
    )


async def test_what_a_user_makes_others_can_read_and_not_change(secured: BrokerConfig) -> None:
    store = await open_ensemble(secured)
    await ensure_cluster(store)
    await register_broker(store, Broker(BrokerId(1), ()), 0)
    anonymous = KazooClient(secured.zookeeper_connect)
    anonymous.start()
    assert anonymous.get(znodes.broker(1))[0]
    refusals: tuple[Callable[[], object], ...] = (
        lambda: anonymous.delete(znodes.broker(1)),
        lambda: anonymous.set(znodes.CLUSTER_ID, b"{}"),
        lambda: anonymous.get_children("/config/users"),
        lambda: anonymous.get_children("/config/brokers"),
        lambda: anonymous.create("/brokers/ids/2"),
    )
    for refused in refusals:
        with pytest.raises(NoAuthError):
            refused()
    anonymous.create("/consumers/old-client")
    again = await open_ensemble(secured)
    await again.set(znodes.CLUSTER_ID, (await again.get(znodes.CLUSTER_ID)).data)
    assert await again.children("/config/users") == []
    anonymous.create("/consumers/others", acl=READ_ACL_UNSAFE)
    with pytest.raises(NotAllowed) as caught:
        await again.set("/consumers/others", b"")
    assert caught.value.path == "/consumers/others"
    anonymous.stop()
    anonymous.close()
    for each in (store, again):
        await each.close()


async def test_a_broker_that_may_not_write_does_not_start(secured: BrokerConfig) -> None:
    store = await open_ensemble(secured)
    with pytest.raises(StartRefused, match="lists deny a broker without headrace.zookeeper.sasl.jaas.config or"):
        await open_ensemble(replace(secured, zookeeper_digest="", zookeeper_set_acl=False))
    await store.close()


async def test_a_stranger_in_a_secured_chroot_is_told_who_may_not(secured: BrokerConfig) -> None:
    client = KazooClient(secured.zookeeper_connect.partition("/")[0], auth_data=[("digest", f"brokers:{SECRET}")])
    client.start()
    chroot = "/" + secured.zookeeper_connect.partition("/")[2]
    client.create(chroot, acl=CREATOR_ALL_ACL)
    client.stop()
    client.close()
    with pytest.raises(StartRefused, match="access control lists deny the user 'guest' an operation") as caught:
        await open_ensemble(replace(secured, zookeeper_digest="guest:hunter2"))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(StartRefused, match="deny a broker without headrace.zookeeper.sasl.jaas.config or"):
        await open_ensemble(replace(secured, zookeeper_digest="", zookeeper_set_acl=False))
    store = await open_ensemble(secured)
    await ensure_cluster(store)
    await store.close()


def test_secrets_are_not_in_what_is_printed(secured: BrokerConfig) -> None:
    assert SECRET not in repr(replace(secured, zookeeper_ssl_keystore_password=SECRET))


async def test_settings_that_do_not_fit_are_refused(secured: BrokerConfig) -> None:
    for wrong, said in (
        ({"zookeeper_digest": "nobody"}, "headrace.zookeeper.digest is not USER:PASSWORD"),
        ({"zookeeper_digest": ""}, "zookeeper.set.acl=true requires an owner of the znodes"),
        ({"zookeeper_connect": "host:port"}, "'host:port' is not HOST:PORT"),
        ({"zookeeper_connect": "host:1,,b:2"}, "'' is not HOST:PORT"),
        ({"zookeeper_connect": "host:1/a//b"}, "'/a//b' is not a path"),
        ({"broker_id": 1001}, "broker.id=1001 is above reserved.broker.max.id=1000"),
        ({"broker_id": -1, "broker_id_generation_enable": False}, "requires broker.id.generation.enable=true"),
    ):
        with pytest.raises(InvalidConfig) as caught:
            await open_ensemble(replace(secured, **wrong))
        assert said in caught.value.message
    with suppress(StartRefused):
        await open_ensemble(
            BrokerConfig(zookeeper_connect="[::1]:1,127.0.0.1:1/a/b/", zookeeper_connection_timeout_ms=1)
        )
