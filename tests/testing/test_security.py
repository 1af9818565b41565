"""A secured broker of `headrace.testing`, and the options that it hands out."""

import stat
from pathlib import Path

import psutil
import pytest

from headrace.client.operations.admin import Admin, NewTopic
from headrace.errors import InvalidConfig, KafkaError
from headrace.testing import Broker, Security
from headrace.testing.security import as_aiokafka, as_kafka_python, as_librdkafka

pytestmark = pytest.mark.slow
BOTH = ("SCRAM-SHA-512", "PLAIN")


def topics(broker: Broker, user: str = "alice", mechanism: str | None = None) -> list[str]:
    with Admin(broker.bootstrap, broker.client_settings(user, mechanism)) as admin:
        return [topic.name for topic in admin.list_topics()]


@pytest.mark.parametrize(
    "security",
    ["PLAINTEXT", "SSL", Security("SSL", client_certificates=True), Security("SASL_PLAINTEXT", mechanisms=BOTH)],
)
def test_every_user_gets_in_with_its_options(security: Security | str) -> None:
    with Broker(security=security) as broker:
        for user in ("admin", "alice", "bob"):
            assert topics(broker, user) == []


def test_a_broker_without_security_needs_no_options() -> None:
    with Broker() as broker:
        assert broker.client_options() == {}
        assert topics(broker) == []


def test_keys_and_users_outlast_a_restart_and_go_with_the_data() -> None:
    with Broker(security=Security("SASL_PLAINTEXT", users={"eve": 'a "quoted" \\ secret'}), subprocess=True) as broker:
        before = broker.client_options("eve")
        broker.kill()
        broker.restart()
        assert broker.client_options("eve") == before
        assert topics(broker, "eve") == []
    with Broker(security="SSL") as broker:
        authority = Path(broker.client_options()["ssl.truststore.location"])
        assert stat.S_IMODE(authority.parent.stat().st_mode) == 0o700
    assert not authority.exists()


def test_no_password_is_on_the_command_line_of_a_broker_in_a_process_of_its_own() -> None:
    with Broker(security=Security("SASL_PLAINTEXT", mechanisms=("PLAIN",)), subprocess=True) as broker:
        processes = [
            each for each in psutil.Process().children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE
        ]
        lines = [" ".join(each.cmdline()) for each in processes]
        assert any("headrace.testing.served" in line for line in lines)
        assert not any("alice-secret" in line for line in lines)
        assert topics(broker) == []


def test_with_acls_only_admin_may_do_something() -> None:
    with Broker(security=Security("SASL_PLAINTEXT", acls=True)) as broker:
        with Admin(broker.bootstrap, broker.client_settings("admin")) as admin:
            admin.create_topics([NewTopic("t", 1)])
        assert topics(broker, "admin") == ["t"]
        assert topics(broker, "alice") == []
        with Admin(broker.bootstrap, broker.client_settings("alice")) as admin, pytest.raises(KafkaError):
            admin.create_topics([NewTopic("u", 1)])


def test_unknown_words_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="security 'TLS' is none of PLAINTEXT, SSL"):
        Broker(security="TLS")
    with pytest.raises(ValueError, match="mechanism 'MD5' is none of"):
        Security(mechanisms=("MD5",))
    with Broker(security="SASL_PLAINTEXT") as broker:
        with pytest.raises(ValueError, match="there is no user 'carol'"):
            broker.client_options("carol")
        with pytest.raises(ValueError, match="does not have 'PLAIN'"):
            broker.client_options("alice", "PLAIN")


def test_options_have_the_names_of_other_clients() -> None:
    with Broker(security=Security("SASL_PLAINTEXT", users={"eve": 'a "b"'})) as broker:
        options = broker.client_options("eve")
        assert as_librdkafka(options) == {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "eve",
            "sasl.password": 'a "b"',
        }
        for found in (as_aiokafka(options), as_kafka_python(options)):
            assert (found["sasl_plain_username"], found["sasl_plain_password"]) == ("eve", 'a "b"')
