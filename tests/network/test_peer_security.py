"""What brokers refuse to start with, and what they take while they run: the settings of their way to each other."""

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.config import BrokerConfig, parse_broker
from headrace.config.dynamic import check_entity, effective
from headrace.errors import InvalidConfig, InvalidRequest
from headrace.network.peers.peer_links import make_links
from headrace.network.peers.peer_security import peer_security
from headrace.network.peers.peers import PeerUnreachable
from tests.certificates import server_settings
from tests.eventually import WITHIN_SECONDS

SASL = {
    "zookeeper.connect": "127.0.0.1:1",
    "listeners": "PEER://127.0.0.1:0",
    "listener.security.protocol.map": "PEER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "peer",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}
JAAS = "listener.name.peer.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def plain(password: str) -> str:
    return f"{MODULE} required username=broker password={password} user_broker={password};"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, f"{JAAS} is not set"),
        ({JAAS: f"{MODULE} required user_broker=hunter2;"}, f"{JAAS}: the option username is not set"),
        ({JAAS: plain("hunter2"), "sasl.mechanism.inter.broker.protocol": "DIGEST"}, "sasl.mechanism.inter.broker"),
    ],
)
def test_a_login_that_is_missing_or_wrong_is_named_without_its_secret(settings: dict[str, str], said: str) -> None:
    config = parse_broker({**SASL, **settings})
    with pytest.raises(InvalidConfig) as caught:
        make_links("test", lambda: config)
    assert said in caught.value.message
    assert "hunter2" not in caught.value.message


def test_a_broker_alone_needs_no_login() -> None:
    config = parse_broker({**SASL, "zookeeper.connect": ""})
    make_links("test", lambda: config)


def test_certificates_are_read_at_the_start(tmp_path: Path) -> None:
    tls = {
        "zookeeper.connect": "127.0.0.1:1",
        "listeners": "PEER://127.0.0.1:0",
        "listener.security.protocol.map": "PEER:SSL",
        "inter.broker.listener.name": "PEER",
        **server_settings(tmp_path),
    }
    config = parse_broker(tls)
    make_links("test", lambda: config)
    (tmp_path / "broker.pem").write_text("nothing")
    with pytest.raises(InvalidConfig, match=r"ssl.keystore.location=.*broker.pem"):
        make_links("test", lambda: config)


def test_a_new_password_counts_from_the_next_authentication_on(caplog: pytest.LogCaptureFixture) -> None:
    config = parse_broker({**SASL, JAAS: plain("old")})

    def current() -> BrokerConfig:
        return config

    security = peer_security(current)

    def first_message() -> bytes:
        assert security.login is not None
        return asyncio.run(security.login.exchange("127.0.0.1")).respond(None)

    assert first_message() == b"\0broker\0old"
    config = replace(config, listener_overrides=(("PEER", "plain.sasl.jaas.config", plain("new")),))
    assert first_message() == b"\0broker\0new"
    config = replace(config, listener_overrides=(("PEER", "plain.sasl.jaas.config", "hunter2"),))
    assert first_message() == b"\0broker\0new"
    assert "keep the login that they had" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_new_mechanism_counts_from_the_next_authentication_on(caplog: pytest.LogCaptureFixture) -> None:
    """Both have a login from the start, so that brokers can go over to the other, one by one."""
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required username=broker password=hunter2;"
    static = parse_broker({**SASL, JAAS: plain("old"), "listener.name.peer.scram-sha-512.sasl.jaas.config": scram})
    setting = "sasl.mechanism.inter.broker.protocol"
    config = static

    def current() -> BrokerConfig:
        return config

    security = peer_security(current)

    def mechanism() -> str:
        assert security.login is not None
        return asyncio.run(security.login.exchange("127.0.0.1")).mechanism

    assert mechanism() == "PLAIN"
    config = effective(static, {setting: "SCRAM-SHA-512"})
    assert mechanism() == "SCRAM-SHA-512"
    config = effective(static, {setting: "SCRAM-SHA-256"})  # which has no login
    assert mechanism() == "SCRAM-SHA-512"
    assert "scram-sha-256.sasl.jaas.config is not set" in caplog.text
    with pytest.raises(InvalidRequest, match="default cluster level"):
        check_entity([setting])


async def test_a_login_that_hangs_holds_no_thread_of_others() -> None:
    """As long as a key distribution centre does not answer, the library waits, though its caller does not."""
    config = parse_broker({**SASL, JAAS: plain("old")})
    security = peer_security(lambda: config)
    assert security.login is not None
    loop, is_over = asyncio.get_running_loop(), threading.Event()
    others = (os.cpu_count() or 1) + 4  # as many as asyncio has
    hanging = [
        asyncio.ensure_future(security.login.run(lambda: is_over.wait(WITHIN_SECONDS))) for _ in range(2 * others)
    ]
    try:
        for each in hanging[:2]:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(each, 0.05)
        async with asyncio.timeout(WITHIN_SECONDS / 2):
            assert await loop.run_in_executor(None, len, "others") == 6
    finally:
        is_over.set()
        security.close()
        await asyncio.gather(*hanging, return_exceptions=True)
    with pytest.raises(PeerUnreachable, match="shutting down"):
        await security.login.exchange("127.0.0.1")
