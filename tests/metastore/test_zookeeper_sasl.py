"""SASL DIGEST-MD5 against a real ZooKeeper with a JAAS file, what it owns, and what is said when it does not fit."""

import asyncio
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from headrace.broker.open_metastore import open_ensemble
from headrace.broker.options import StartRefused
from headrace.config import BrokerConfig
from headrace.errors import InvalidConfig
from headrace.metadata.registry import ensure_cluster
from headrace.metadata.znodes import FEATURE, PERSISTENT
from headrace.metastore.zookeeper.digest_md5 import DigestMd5, DigestRefused
from tests.kerberos import KEYTAB_LOGIN, Realm
from tests.kerberos import missing_tools as missing_kerberos
from tests.peers import kafka
from tests.peers.node import old_java
from tests.sasl_zookeeper import MODULE, client_of, client_options, sasl_zookeeper, zookeeper_login
from tests.zookeeper_server import ZooKeeperServer, missing_tools


@pytest.fixture(scope="module")
def sasl_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if reason := missing_tools():
        pytest.skip(reason)
    with sasl_zookeeper(tmp_path_factory.mktemp("sasl")) as address:
        yield address


@pytest.fixture
def config(sasl_server: str) -> BrokerConfig:
    return BrokerConfig(
        zookeeper_connect=f"{sasl_server}/sasl-{uuid4()}",
        zookeeper_sasl_jaas=zookeeper_login(),
        zookeeper_set_acl=True,
        zookeeper_connection_timeout_ms=20_000,
    )


@pytest.mark.slow
@pytest.mark.peer
async def test_the_user_of_the_jaas_section_owns_the_znodes(config: BrokerConfig) -> None:
    store = await open_ensemble(config)
    await ensure_cluster(store)
    client = client_of(config)
    anonymous = KazooClient(config.zookeeper_connect)
    for each in (client, anonymous):
        each.start()
    secret = client.get_acls("/config/users")[0]
    assert [(each.id.scheme, each.id.id, each.acl_list) for each in secret] == [("sasl", "brokers", ["ALL"])]
    plain = {(each.id.scheme, each.id.id, tuple(each.acl_list)) for each in client.get_acls("/brokers/ids")[0]}
    assert plain == {("sasl", "brokers", ("ALL",)), ("world", "anyone", ("READ",))}
    for secret_path in ("/config/users", "/config/brokers"):
        with pytest.raises(NoAuthError):
            anonymous.get_children(secret_path)
    assert anonymous.get_children("/brokers/ids") == []
    for each in (client, anonymous):
        each.stop()
        each.close()
    await store.close()


@pytest.mark.slow
@pytest.mark.peer
async def test_who_is_refused_is_told_why_at_once(config: BrokerConfig, caplog: pytest.LogCaptureFixture) -> None:
    for user, password in (("brokers", "hunter2"), ("nobody", "hunter2")):
        with pytest.raises(
            StartRefused, match=f"did not authenticate the user '{user}': unknown user or wrong password"
        ):
            await open_ensemble(replace(config, zookeeper_sasl_jaas=zookeeper_login(user, password)))
    assert "hunter2" not in caplog.text
    assert caplog.text.count("did not authenticate the user 'nobody'") <= 2
    store = await open_ensemble(config)
    await ensure_cluster(store)  # the chroot belongs to `brokers`
    await store.close()
    with pytest.raises(StartRefused, match="access control lists deny the user 'others'"):
        await open_ensemble(replace(config, zookeeper_sasl_jaas=zookeeper_login("others")))


MIGRATOR = "kafka.admin.ZkSecurityMigrator"


def acls_of(client: KazooClient, paths: Sequence[str]) -> dict[str, set[tuple[str, str, tuple[str, ...]]]]:
    return {
        path: {(each.id.scheme, each.id.id, tuple(each.acl_list)) for each in client.get_acls(path)[0]}
        for path in paths
    }


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or "")
def test_the_migration_tool_of_apache_kafka_sets_the_lists_that_brokers_set(
    config: BrokerConfig, tmp_path: Path
) -> None:
    async def make(config: BrokerConfig) -> None:
        store = await open_ensemble(config)
        await ensure_cluster(store)
        await store.close()

    def migrate(to: str) -> None:
        tool = [*old_java(tmp_path / "tools", "-Xmx128m", *client_options(tmp_path)), MIGRATOR]
        given = [f"--zookeeper.acl={to}", f"--zookeeper.connect={open_config.zookeeper_connect}"]
        done = subprocess.run([*tool, *given], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    open_config = replace(config, zookeeper_connect=f"{config.zookeeper_connect}-open", zookeeper_set_acl=False)
    for each in (config, open_config):
        asyncio.run(make(each))
    secured, opened = client_of(config), client_of(open_config)
    for client in (secured, opened):
        client.start()
    paths = [*PERSISTENT, FEATURE, "/config", "/brokers", "/admin"]
    everybody = {("world", "anyone", ("ALL",))}
    assert acls_of(opened, paths) == dict.fromkeys(paths, everybody)
    migrate("secure")
    assert acls_of(opened, paths) == acls_of(secured, paths)
    migrate("unsecure")
    assert acls_of(opened, paths) == dict.fromkeys(paths, everybody)
    for client in (secured, opened):
        client.stop()
        client.close()


@pytest.mark.slow
@pytest.mark.peer
async def test_nodes_of_headrace_that_were_open_are_closed(config: BrokerConfig) -> None:
    before = await open_ensemble(replace(config, zookeeper_set_acl=False))
    for path in ("/headrace/fenced", "/headrace/fenced/1", "/headrace/scram_decoys"):
        await before.create(path)
    for _ in range(2):
        store = await open_ensemble(config)
        client = client_of(config)
        client.start()
        found = acls_of(client, ["/headrace", "/headrace/fenced/1", "/headrace/scram_decoys"])
        client.stop()
        client.close()
        await store.close()
        owned, read = ("sasl", "brokers", ("ALL",)), ("world", "anyone", ("READ",))
        assert list(found.values()) == [{owned, read}, {owned, read}, {owned}]
    await before.close()


@pytest.mark.slow
@pytest.mark.peer
async def test_secrets_that_anybody_can_read_are_warned_of(
    zookeeper_server: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"{zookeeper_server.address}/open-{uuid4()}"
    plain = BrokerConfig(zookeeper_connect=address, zookeeper_connection_timeout_ms=20_000)
    for config in (plain, replace(plain, sasl_enabled_mechanisms=("SCRAM-SHA-256",))):
        assert "zookeeper.set.acl" not in caplog.text
        await (await open_ensemble(config)).close()
    assert caplog.text.count("zookeeper.set.acl is false") == 1


@pytest.mark.slow
@pytest.mark.peer
async def test_a_server_without_sasl_is_not_used(zookeeper_server: ZooKeeperServer, config: BrokerConfig) -> None:
    with pytest.raises(StartRefused, match="has no SASL"):
        await open_ensemble(replace(config, zookeeper_connect=f"{zookeeper_server.address}/none-{uuid4()}"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "headrace.zookeeper.sasl.jaas.config: "),
        ("org.apache.kafka.common.security.plain.PlainLoginModule required username=a password=hunter2;", "is not org"),
        (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;",
            "headrace.zookeeper.sasl.jaas.config: set principal",
        ),
        (f"{MODULE} required password=hunter2;", "is not org.apache.zookeeper.server.auth.DigestLoginModule"),
    ],
)
async def test_a_login_that_does_not_fit_is_refused_without_its_text(text: str, said: str) -> None:
    config = BrokerConfig(zookeeper_connect="127.0.0.1:1", zookeeper_sasl_jaas=text)
    with pytest.raises(InvalidConfig) as caught:
        await open_ensemble(config)
    assert said in caught.value.message
    assert "hunter2" not in caught.value.message + repr(config)


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.skipif(bool(missing_kerberos()), reason=missing_kerberos() or "")
async def test_kerberos_makes_the_principal_the_owner(
    tmp_path: Path, zookeeper_server: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    if reason := missing_tools():
        pytest.skip(reason)
    with Realm(tmp_path) as realm, realm.used():
        keys = {"Server": realm.add("zookeeper/127.0.0.1"), "Client": realm.add("kafka/127.0.0.1")}
        (tmp_path / "server").mkdir()
        jaas = tmp_path / "server-jaas.conf"
        login = f'{KEYTAB_LOGIN} keyTab="{keys["Server"]}" principal="zookeeper/127.0.0.1@EXAMPLE.COM";'
        jaas.write_text(f"Server {{ {login} }};")
        options = (f"-Djava.security.auth.login.config={jaas}", f"-Djava.security.krb5.conf={realm.config}")
        provider = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
        with ZooKeeperServer(tmp_path / "server", settings=provider, options=options) as server:
            config = BrokerConfig(
                zookeeper_connect=f"{server.address}/kerberos",
                zookeeper_sasl_jaas=f'{KEYTAB_LOGIN} keyTab="{keys["Client"]}" principal="kafka/127.0.0.1";',
                zookeeper_set_acl=True,
                zookeeper_connection_timeout_ms=20_000,
            )
            store = await open_ensemble(config)
            await ensure_cluster(store)
            client = client_of(config)
            client.start()
            owners = {(each.id.scheme, each.id.id) for each in client.get_acls("/config/users")[0]}
            assert owners == {("sasl", "kafka/127.0.0.1@EXAMPLE.COM")}
            client.stop()
            client.close()
            await store.close()
            wrong = config.zookeeper_sasl_jaas.replace("required", "required serviceName=zoo")
            with pytest.raises(
                StartRefused, match=r"Server zoo/127\.0\.0\.1@EXAMPLE\.COM not found in Kerberos database"
            ):
                await open_ensemble(replace(config, zookeeper_sasl_jaas=wrong))
        none = replace(config, zookeeper_connect=f"{zookeeper_server.address}/none-{uuid4()}")
        with pytest.raises(StartRefused, match="has no SASL"):
            await open_ensemble(none)


CHALLENGE = b'realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh",charset=utf-8,algorithm=md5-sess,qop="auth"'


def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    client = DigestMd5("brokers", "secret", os.urandom)
    assert client.respond(None) == b""
    assert b'username="brokers"' in client.respond(CHALLENGE)
    with pytest.raises(DigestRefused, match="prove"):
        client.respond(b"rspauth=00000000000000000000000000000000")
    assert not client.is_complete


@pytest.mark.parametrize(
    "challenge",
    [b"nonce", b'nonce="a', b"=a", b'nonce="a",algorithm=md5', b'nonce="a",algorithm=md5-sess,qop="auth-conf"',
     b"algorithm=md5-sess", b'nonce="' + b"a" * 3000 + b'"', b"\xff\xfe"],
)  # fmt: skip
def test_a_malformed_challenge_is_refused(challenge: bytes) -> None:
    client = DigestMd5("brokers", "secret", os.urandom)
    client.respond(None)
    with pytest.raises(DigestRefused):
        client.respond(challenge)
