"""Certificates that change while a broker runs: by a dynamic setting, and by a changed file."""

import asyncio
import logging
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from headrace.config.dynamic import DYNAMIC
from headrace.errors import InvalidRequest
from headrace.metadata.config_changes import Alteration, ConfigChange, ConfigOperation
from headrace.network.tls.contexts import client_context
from headrace.protocol import messages as m
from tests.broker.tls_broker import TlsBroker, tls_broker
from tests.certificates import PASSWORD, authority, client_settings, identity, write_pem, write_pkcs12
from tests.eventually import eventually_async


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.network.tls.listeners.LOOK_S", 0.05)


async def serial(broker: TlsBroker) -> int:
    """The serial number of the certificate that the broker presents."""

    def connect() -> int:
        with broker.connect() as sock:
            found = sock.getpeercert(binary_form=True)
            assert found is not None
            return x509.load_der_x509_certificate(found).serial_number

    return await asyncio.to_thread(connect)


async def alter(broker: TlsBroker, *changes: tuple[str, str | None], only_validate: bool = False) -> None:
    """Changes settings of this broker, as IncrementalAlterConfigs does."""
    wanted = [
        ConfigChange(name, ConfigOperation.DELETE if text is None else ConfigOperation.SET, text)
        for name, text in changes
    ]
    broker_id = str(broker.services.replication.broker_id)
    await broker.services.settings.rewrite(broker_id, Alteration(wanted), validate_only=only_validate)


def replace(path: Path, data: bytes) -> None:
    """Replaces a file at once, as tools that renew certificates do."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)


async def presents(broker: TlsBroker, number: int) -> None:
    """Waits until new connections get the certificate with this serial number."""

    async def is_it() -> bool:
        return await serial(broker) == number

    await eventually_async(is_it, "the other certificate")


async def test_a_changed_file_is_used_by_new_connections_and_open_ones_go_on(tmp_path: Path) -> None:
    renewed = identity("broker", days=100)
    async with tls_broker(tmp_path) as broker:
        old = await asyncio.to_thread(broker.connect)
        replace(tmp_path / "broker.pem", renewed.key_pem() + renewed.certificate_pem())
        await presents(broker, renewed.certificate.serial_number)
        with old:
            old.sendall((10).to_bytes(4, "big") + bytes.fromhex("00120000000000 07ffff".replace(" ", "")))
            assert await asyncio.to_thread(old.recv, 4)


async def test_a_bad_file_leaves_the_old_certificate_and_one_line_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tls_broker(tmp_path) as broker:
        number = await serial(broker)
        with caplog.at_level(logging.ERROR):
            replace(tmp_path / "broker.pem", b"-----BEGIN nonsense")
            await eventually_async(lambda: _is("keeps the certificate", caplog), "the line")
            await asyncio.sleep(0.2)
        assert await serial(broker) == number
        lines = [each.message for each in caplog.records if "keeps the certificate" in each.message]
        assert len(lines) == 1
        assert f"ssl.keystore.location={tmp_path / 'broker.pem'}" in lines[0]


async def _is(text: str, caplog: pytest.LogCaptureFixture) -> bool:
    return text in caplog.text


async def test_a_dynamic_setting_changes_the_certificate_of_one_listener(tmp_path: Path) -> None:
    renewed = identity("broker", days=101)
    path = write_pem(tmp_path / "renewed.pem", renewed)
    async with tls_broker(tmp_path) as broker:
        before = await serial(broker)
        await alter(broker, ("listener.name.ssl.ssl.keystore.location", str(path)))
        await presents(broker, renewed.certificate.serial_number)
        await alter(broker, ("listener.name.ssl.ssl.keystore.location", None))
        await presents(broker, before)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("listener.name.ssl.ssl.keystore.location", "/nowhere/x.pem", "/nowhere/x.pem: No such file"),
        ("ssl.keystore.location", "/nowhere/x.pem", "/nowhere/x.pem: No such file"),
        ("listener.name.tls.ssl.keystore.location", "/x.pem", "no listener TLS; the listeners are PLAINTEXT, SSL"),
        ("listener.name.ssl.ssl.client.auth", "required", "Cannot update these configs dynamically"),
        ("listener.name.ssl.ssl.keystore.type", "PFX", "is not one of JKS, PKCS12, PEM"),
    ],
)
async def test_a_setting_that_cannot_be_used_is_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    async with tls_broker(tmp_path) as broker:
        for only_validate in (True, False):
            with pytest.raises(InvalidRequest) as caught:
                await alter(broker, (name, text), only_validate=only_validate)
            assert says in caught.value.message


async def test_a_certificate_for_another_broker_is_refused_unless_permitted(tmp_path: Path) -> None:
    other = identity("another")
    path = write_pem(tmp_path / "another.pem", other)
    async with tls_broker(tmp_path) as broker:
        with pytest.raises(InvalidRequest, match=r"the subject is CN=another.* instead of CN=broker"):
            await alter(broker, ("ssl.keystore.location", str(path)))
    async with tls_broker(tmp_path, ssl_allow_dn_changes="true") as broker:
        await alter(broker, ("ssl.keystore.location", str(path)))
        await presents(broker, other.certificate.serial_number)


async def test_every_setting_of_a_store_changes_it(tmp_path: Path) -> None:
    """The settings that are dynamic in Apache Kafka: stores of both kinds, their passwords and their inline forms."""
    names = {name for name in DYNAMIC if name.startswith("ssl.")}
    assert names == {
        "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location",
        "ssl.keystore.password", "ssl.keystore.type", "ssl.truststore.certificates", "ssl.truststore.location",
        "ssl.truststore.password", "ssl.truststore.type",
    }  # fmt: skip


async def test_a_password_is_stored_only_encrypted(tmp_path: Path) -> None:
    renewed = identity("broker", days=102)
    path = write_pkcs12(tmp_path / "renewed.p12", renewed)
    changes = (
        ("ssl.keystore.location", str(path)),
        ("ssl.keystore.password", PASSWORD),
        ("ssl.keystore.type", "PKCS12"),
    )
    async with tls_broker(tmp_path) as broker:
        with pytest.raises(InvalidRequest, match=r"password\.encoder\.secret"):
            await alter(broker, *changes)
    async with tls_broker(tmp_path, password_encoder_secret="a secret of the operator") as broker:
        await alter(broker, *changes)
        await presents(broker, renewed.certificate.serial_number)
    files = [each.read_bytes() for each in (tmp_path / "data").rglob("*") if each.is_file()]
    assert any(b"encryptedPassword" in each for each in files)
    assert not any(PASSWORD.encode() in each for each in files)
    secrets = {"password_encoder_secret": "another secret", "password_encoder_old_secret": "a secret of the operator"}
    async with tls_broker(tmp_path, **secrets) as broker:
        await presents(broker, renewed.certificate.serial_number)
    async with tls_broker(tmp_path, password_encoder_secret="another secret") as broker:
        await presents(broker, renewed.certificate.serial_number)


async def test_a_changed_trust_store_decides_about_new_clients(tmp_path: Path) -> None:
    async with tls_broker(tmp_path, ssl_client_auth="required") as broker:

        def gets_in() -> bool:
            try:
                with broker.connect(name="alice") as sock:
                    sock.sendall((10).to_bytes(4, "big") + bytes.fromhex("0012000000000007ffff"))
                    return bool(sock.recv(4))
            except (ssl.SSLError, ConnectionError):
                return False

        async def is_refused() -> bool:
            return not await asyncio.to_thread(gets_in)

        assert await asyncio.to_thread(gets_in)
        path = tmp_path / "clients.pem"
        path.write_bytes(authority("others").certificate_pem())
        await alter(broker, ("listener.name.ssl.ssl.truststore.location", str(path)))
        await eventually_async(is_refused, "the refusal")


async def test_a_certificate_that_ends_soon_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_pem(tmp_path / "soon.pem", identity("broker", days=10))
    with caplog.at_level(logging.WARNING):
        async with tls_broker(tmp_path, ssl_keystore_location=str(tmp_path / "soon.pem")):
            await eventually_async(lambda: _is("ends at", caplog), "the warning")
    assert str(tmp_path / "soon.pem") in caplog.text


async def test_no_password_is_in_a_description(tmp_path: Path) -> None:
    def describe() -> Any:
        resource = m.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=4, resource_name=str(broker.services.replication.broker_id), configuration_keys=None
        )
        with broker.ask() as asker:
            request = m.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
            return asker.ask(request, 4).results[0]

    settings = {"listener.name.ssl.ssl.key.password": PASSWORD, "password.encoder.secret": f"{PASSWORD} of all"}
    async with tls_broker(tmp_path, **settings) as broker:
        await alter(broker, ("ssl.key.password", f"{PASSWORD} of the broker"))
        result = await asyncio.to_thread(describe)
    assert PASSWORD not in str(result)
    found = {each.name: each for each in result.configs}
    for name in ("listener.name.ssl.ssl.key.password", "ssl.key.password", "password.encoder.secret"):
        assert found[name].is_sensitive
        assert found[name].value is None
    assert found["ssl.keystore.location"].value == str(tmp_path / "broker.pem")


async def test_a_session_of_before_a_change_of_trust_cannot_be_resumed(tmp_path: Path) -> None:
    """A resumed session proves nothing anew: it must not outlive the authorities that it was accepted by."""
    context = client_context({**client_settings(tmp_path, name="alice"), "ssl.enabled.protocols": "TLSv1.2"})

    def shake_hands(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool]:
        with (
            socket.create_connection(("127.0.0.1", broker.port)) as sock,
            context.wrap_socket(sock, server_hostname="localhost", session=session) as wrapped,
        ):
            return wrapped.session, bool(wrapped.session_reused)

    async with tls_broker(tmp_path, ssl_client_auth="required") as broker:
        session, _ = await asyncio.to_thread(shake_hands, None)
        path = tmp_path / "clients.pem"
        path.write_bytes(authority("others").certificate_pem())
        await alter(broker, ("listener.name.ssl.ssl.truststore.location", str(path)))

        async def is_refused() -> bool:
            try:
                await asyncio.to_thread(shake_hands, session)
            except (ssl.SSLError, ConnectionError):
                return True
            return False

        await eventually_async(is_refused, "the refusal")
