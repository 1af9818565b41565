"""A server.properties of Apache Kafka as headrace reads it: every setting of 2.8 and 3.9 is known as something."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.config import BROKER_SETTINGS, apache_kafka, parse_broker, read_broker
from headrace.config.explanation import explain
from headrace.config.listener_settings import settings_of_listener
from headrace.config.properties import known_names
from headrace.errors import InvalidConfig
from headrace.network.listeners import parse_protocols
from tests.config.shipped import CONFLUENT, SHIPPED_2_8, SHIPPED_3_9
from tests.peers import kafka

HERE = Path(__file__).parent
RELEASES = {"2.8": "2.8.2", "3.9": "3.9.2"}


def listed(release: str) -> dict[str, str]:
    """The names and defaults of a release, from the list beside this file."""
    lines = (HERE / "apache_kafka_settings.txt").read_text().splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    column = list(RELEASES).index(release) + 1
    return {row[0]: row[column] for row in rows if row[column] != "-"}


def defaults(release: str) -> Iterator[tuple[str, str]]:
    """Each default as a file would have it."""
    for name, text in listed(release).items():
        if text != "null":
            is_list = text.startswith("[") and text.endswith("]")
            yield name, text[1:-1].replace(", ", ",") if is_list else text


@pytest.mark.parametrize("release", RELEASES)
def test_every_setting_of_apache_kafka_is_known_as_something(release: str) -> None:
    known = set(known_names())
    assert [name for name in listed(release) if name not in known and apache_kafka.judge(name) is None] == []


@pytest.mark.parametrize("release", RELEASES)
def test_every_default_of_apache_kafka_written_down_starts_a_broker(release: str) -> None:
    for name, text in defaults(release):
        assert read_broker({name: text}, strict=True).warnings == (), name


@pytest.mark.parametrize("release", RELEASES)
def test_every_setting_of_apache_kafka_is_explained(release: str) -> None:
    for name in listed(release):
        lines = explain(name).splitlines()
        assert lines[0].startswith(name)
        assert lines[-1].endswith("."), name


def test_no_setting_is_said_to_be_missing_that_is_there() -> None:
    assert [name for name in known_names() if apache_kafka.judge(name) is not None] == []


@pytest.mark.parametrize("properties", [SHIPPED_2_8, SHIPPED_3_9, CONFLUENT], ids=["2.8", "3.9", "confluent"])
def test_a_shipped_file_is_read_without_a_warning(properties: dict[str, str]) -> None:
    read = read_broker(properties, strict=True)
    assert read.warnings == ()
    assert (read.config.broker_id, read.config.log_dirs) == (0, (properties["log.dirs"],))
    assert read.config.zookeeper_connect == "localhost:2181"
    assert read.config.topic_defaults.retention_ms == 7 * 24 * 3_600_000
    assert set(read.ignored) == set(properties) - set(known_names())
    assert {"num.io.threads", "num.network.threads"} <= set(read.ignored)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("authorizer.zookeeper.url", "acls:2181"),
        ("ssl.engine.factory.class", "com.example.Factory"),
        ("quota.producer.default", "1048576"),
        ("client.quota.callback.class", "com.example.Quota"),
        ("create.topic.policy.class.name", "com.example.Policy"),
        ("process.roles", "broker,controller"),
        ("remote.log.storage.system.enable", "true"),
        ("confluent.tier.enable", "true"),
        ("zookeeper.ssl.crl.enable", "true"),
    ],
)
def test_what_would_weaken_the_cluster_if_it_were_ignored_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_broker({name: text})
    assert caught.value.message.startswith(f"{name}='{text}' cannot be ignored. ")
    assert explain(name).startswith(name)


def test_an_unknown_setting_is_a_warning_with_the_nearest_name() -> None:
    read = read_broker({"log.segmnt.bytes": "1", "com.example.interval": "7"})
    assert read.warnings == (
        "unknown setting 'log.segmnt.bytes': did you mean 'log.segment.bytes'?",
        "unknown setting 'com.example.interval'",
    )
    assert read.config == parse_broker({})


def test_an_unknown_setting_is_refused_when_strict() -> None:
    with pytest.raises(
        InvalidConfig, match=r"unknown setting 'log\.segmnt\.bytes': did you mean 'log\.segment\.bytes'"
    ):
        read_broker({"log.segmnt.bytes": "1"}, strict=True)


def test_a_setting_without_a_meaning_is_no_warning() -> None:
    given = {"num.io.threads": "8", "confluent.balancer.enable": "true", "ssl.provider": "SunJSSE"}
    assert read_broker(given, strict=True) == (parse_broker({}), tuple(given), ())


@pytest.mark.parametrize(
    ("given", "listeners", "advertised"),
    [
        ({"port": "9093"}, "PLAINTEXT://127.0.0.1:9093", None),
        ({"host.name": "10.0.0.1"}, "PLAINTEXT://10.0.0.1:9092", None),
        ({"host.name": "10.0.0.1", "port": "9093"}, "PLAINTEXT://10.0.0.1:9093", None),
        (
            {"host.name": "10.0.0.1", "port": "9093", "advertised.host.name": "kafka.example"},
            "PLAINTEXT://10.0.0.1:9093",
            "PLAINTEXT://kafka.example:9093",
        ),
        (
            {"host.name": "10.0.0.1", "advertised.port": "443"},
            "PLAINTEXT://10.0.0.1:9092",
            "PLAINTEXT://10.0.0.1:443",
        ),
        ({"listeners": "PLAINTEXT://h:1", "port": "2", "host.name": "i"}, "PLAINTEXT://h:1", None),
        (
            {"advertised.listeners": "PLAINTEXT://h:1", "advertised.port": "2", "host.name": "i"},
            "PLAINTEXT://i:9092",
            "PLAINTEXT://h:1",
        ),
    ],
)
def test_the_listener_settings_of_2_8_are_read_where_the_newer_ones_are_not_set(
    given: dict[str, str], listeners: str, advertised: str | None
) -> None:
    read = read_broker(given, strict=True)
    assert read.config.listeners == (listeners,)
    assert read.config.advertised_listeners == ((advertised,) if advertised else ())
    assert read.ignored == read.warnings == ()


@pytest.mark.parametrize(
    ("given", "warns"),
    [
        ({}, False),
        ({"zookeeper.connect": "localhost:2181/chroot"}, False),
        ({"zookeeper.connect": "localhost"}, False),
        ({"zookeeper.connect": "localhost:2181,zk2:2181"}, True),
        ({"advertised.listeners": "PLAINTEXT://kafka.example:9092"}, True),
        ({"advertised.listeners": "PLAINTEXT://localhost:9092"}, False),
        ({"advertised.host.name": "kafka.example"}, True),
        ({"zookeeper.connect": "zk:2181", "listeners": "PLAINTEXT://:9092"}, False),
    ],
)
def test_a_file_that_means_other_machines_without_a_listener_for_them_is_warned_of(
    given: dict[str, str], warns: bool
) -> None:
    said = read_broker(given).warnings
    assert bool(said) == warns
    assert all("listeners is not set" in each for each in said)


def test_an_explanation_has_what_the_reference_page_has() -> None:
    setting = BROKER_SETTINGS["replica.lag.time.max.ms"][1]
    said = explain("replica.lag.time.max.ms")
    assert setting.doc in said
    for fact in ("type: long", "default: 30000 ms", "bounds: at least 1"):
        assert f"\n{fact}\n" in said


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("listener.name.inside.ssl.keystore.location", "sets ssl.keystore.location for the listener INSIDE alone"),
        ("listener.name.inside.max.connections", "sets max.connections for the listener INSIDE alone"),
        (
            "listener.name.inside.plain.sasl.jaas.config",
            "sasl.jaas.config of the mechanism PLAIN for the listener INSIDE",
        ),
    ],
)
def test_a_setting_of_one_listener_is_explained(name: str, says: str) -> None:
    assert says in explain(name)


def test_an_unknown_setting_is_not_explained_but_the_nearest_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"'retention\.m': did you mean 'retention\.ms'"):
        explain("retention.m")


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or "")
@pytest.mark.parametrize("release", RELEASES)
def test_the_list_of_settings_is_that_of_apache_kafka_itself(release: str) -> None:
    command = ["java", "-cp", f"{kafka.jars(RELEASES[release])}/*", str(HERE / "ConfigNames.java")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    live = dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
    assert len(live) > 200
    assert live == listed(release)


LISTENERS = {"listeners": "IN://:1,OUTSIDE://:2", "listener.security.protocol.map": "IN:PLAINTEXT,OUTSIDE:SSL"}


def test_the_limits_of_one_listener_are_read_with_its_name() -> None:
    given = LISTENERS | {
        "listener.name.outside.max.connections": "5", "listener.name.in.max.connection.creation.rate": "7",
    }  # fmt: skip
    assert read_broker(given).config.listener_limits == (
        ("OUTSIDE", "max.connections", 5),
        ("IN", "max.connection.creation.rate", 7),
    )
    with pytest.raises(InvalidConfig, match=r"listener\.name\.outside\.max\.connections='many'"):
        read_broker({"listener.name.outside.max.connections": "many"})


def test_a_listener_has_its_own_settings_over_those_of_the_broker() -> None:
    given = LISTENERS | {
        "ssl.keystore.location": "/all.pem",
        "ssl.keystore.type": "PEM",
        "listener.name.outside.ssl.keystore.location": "/outside.pem",
        "listener.name.OUTSIDE.ssl.client.auth": "required",
    }
    config = parse_broker(given)
    inside, outside = (settings_of_listener(config, name) for name in ("IN", "outside"))
    assert inside["ssl.keystore.location"] == "/all.pem"
    assert inside["ssl.client.auth"] == "none"
    assert outside["ssl.keystore.location"] == "/outside.pem"
    assert outside["ssl.client.auth"] == "required"
    assert inside["ssl.keystore.type"] == outside["ssl.keystore.type"] == "PEM"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("listener.name.outsite.ssl.client.auth", "none", "no listener OUTSITE; the listeners are IN, OUTSIDE"),
        ("listener.name.outside.ssl.client.auth", "maybe", "'maybe' is not one of none, requested, required"),
        ("listener.name.outside.ssl.engine.factory.class", "com.example.Factory", "Java classes cannot be loaded"),
        ("listener.name.outside.ssl.keystore.locaton", "/x", "unknown setting"),
        ("listener.security.protocol.map", "IN:PLAINTEXT,OUTSIDE:TLS", "names no protocol"),
    ],
)
def test_a_wrong_setting_of_a_listener_is_refused(name: str, text: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(says)):
        config = read_broker(LISTENERS | {name: text}, strict=True).config
        parse_protocols(config.listener_security_protocol_map)


def test_the_protocol_between_brokers_names_their_listener() -> None:
    config = parse_broker({"listeners": "SSL://:1,PLAINTEXT://:2", "security.inter.broker.protocol": "SSL"})
    assert config.inter_broker_listener_name == "SSL"
    with pytest.raises(InvalidConfig, match="both set"):
        parse_broker({"security.inter.broker.protocol": "SSL", "inter.broker.listener.name": "IN"})


def test_secrets_of_listeners_are_in_no_representation() -> None:
    given = LISTENERS | {"listener.name.outside.ssl.key.password": "secret-1", "ssl.key.password": "secret-2"}
    config = parse_broker(given)
    assert settings_of_listener(config, "OUTSIDE")["ssl.key.password"] == "secret-1"
    assert "secret" not in repr(config)


@pytest.mark.parametrize("text", ["localhost:5", "10.0.0.1", "10.0.0.1:many", "10.0.0.1:-1"])
def test_a_limit_for_no_address_is_refused(text: str) -> None:
    assert read_broker({"max.connections.per.ip.overrides": "10.0.0.1:5,[::1]:7"}).warnings == ()
    with pytest.raises(InvalidConfig, match="max.connections.per.ip.overrides"):
        read_broker({"max.connections.per.ip.overrides": text})
