"""Settings by Kafka's names and by ours: one table, from which the checks and the page follow."""

from typing import Any, get_type_hints

import pytest

from headrace import Admin, Consumer, ConsumerSettings, Producer, ProducerSettings, ShareConsumerSettings
from headrace.client.core.option_types import ClientOptions, ConsumerOptions, ProducerOptions, ShareConsumerOptions
from headrace.client.core.options import KINDS
from headrace.client.core.other_names import ELSEWHERE, SAME
from headrace.client.core.settings import ClientSettings
from headrace.client.security.arguments import settings_of
from headrace.errors import InvalidConfig

NOBODY = "127.0.0.1:1"
SETTINGS: dict[str, Any] = {
    "client": ClientSettings,
    "producer": ProducerSettings,
    "consumer": ConsumerSettings,
    "share_consumer": ShareConsumerSettings,
}


def field_of(settings: object, path: str) -> object:
    for name in path.split("."):
        settings = getattr(settings, name)
    return settings


@pytest.mark.parametrize(("kind", "option"), [(kind, option) for kind in KINDS for option in KINDS[kind]])
def test_each_name_of_a_setting_sets_its_field(kind: str, option: Any) -> None:
    default = field_of(SETTINGS[kind](), option.field)
    wanted = {bool: not default, int: 7, float: 7.5, str: "x"}.get(option.kind)
    if option.field == "times.session_timeout_ms":
        wanted = 7_000
    beside = {"group_protocol": "consumer"} if option.field == "group_remote_assignor" else {}
    if option.kind in (str, object):
        wanted = {
            "acquire_mode": "record_limit",
            "acknowledgement_mode": "explicit",
            "acks": "0",
            "assignors": ("roundrobin",),
            "auto_offset_reset": "none",
            "group_protocol": "consumer",
            "isolation_level": "read_committed",
        }.get(option.field, wanted)
    for name in option.names:
        assert field_of(SETTINGS[kind](**{name: wanted}, **beside), option.field) == wanted


def test_kafka_python_s_and_confluent_s_ways_to_give_settings() -> None:
    options = {"linger_ms": 20, "batch_size": 65_536, "client_id": "till", "default_api_timeout_ms": 5_000}
    dotted = {name.replace("_", "."): str(value) for name, value in options.items()}
    for bootstrap, given in [(NOBODY, options), ({"bootstrap.servers": NOBODY, **dotted}, {})]:
        address, settings, client = settings_of("producer", bootstrap, ProducerSettings(), None, given)  # type: ignore[arg-type]
        assert (address, settings.linger_ms, settings.batch_bytes) == (NOBODY, 20, 65_536)
        assert (client.client_id, client.api_timeout_ms) == ("till", 5_000)


def test_a_consumer_takes_kafka_s_names() -> None:
    with Consumer(
        bootstrap_servers=NOBODY, group_id="kitchen", enable_auto_commit=False, session_timeout_ms=9_000,
        max_partition_fetch_bytes=4_096, partition_assignment_strategy="roundrobin, range",
    ) as consumer:  # fmt: skip
        settings = consumer.settings
    assert (settings.group_id, settings.auto_commit, settings.times.session_timeout_ms) == ("kitchen", False, 9_000)
    assert (settings.sizes.partition_max_bytes, settings.assignors) == (4_096, ("roundrobin", "range"))


def test_options_by_name_come_over_settings_as_a_value() -> None:
    made: Any = ConsumerSettings  # which takes more names than its fields
    base = made(group_id="a", heartbeat_interval_ms=500)
    with Consumer(NOBODY, base, session_timeout_ms=9_000, group_id="b") as consumer:
        assert consumer.settings == made(group_id="b", heartbeat_interval_ms=500, session_timeout_ms=9_000)


def test_options_of_security_are_read_as_kafka_names_them() -> None:
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl.jaas.config": "x"}
    _, _, client = settings_of("client", NOBODY, None, None, options)
    assert client.sasl is not None and client.sasl["sasl.mechanism"] == "PLAIN"
    with pytest.raises(InvalidConfig, match=r"sasl\.username is librdkafka's name"):
        Producer({"bootstrap.servers": NOBODY, "sasl.username": "anna", "security.protocol": "SASL_SSL"})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"linger_ms": -5}, r"linger_ms=-5: expected a number of at least 0"),
        ({"batch_bytes": 0}, r"batch_bytes=0: expected a whole number of at least 1"),
        ({"batch_size": 0}, r"batch_bytes=0"),
        ({"linger.ms": "soon"}, r"linger.ms='soon': expected a number"),
        ({"max_in_flight": 0}, r"max_in_flight=0"),
        ({"buffer_memory": True}, r"buffer_memory_bytes=True"),
        ({"delivery_timeout_ms": 1.5}, r"delivery_timeout_ms=1\.5: expected a whole number"),
        ({"compression": None}, r"compression=None: expected text"),
        ({"enable_idempotence": "perhaps"}, r"idempotence='perhaps': expected True or False"),
        ({"request_timeout_ms": 0}, r"request_timeout_ms=0"),
        ({"retry_backoff_ms": -1}, r"retry_backoff_ms=-1"),
        ({"linger": 5}, r"linger is no setting of a producer; did you mean linger_ms\?"),
        ({"batch.sise": 5}, r"did you mean batch\.size\?"),
        ({"group_id": "a"}, r"group_id is a setting of a consumer, not of a producer"),
        ({"value_serializer": 5}, r"5 is no serializer: give a function"),
        ({"value_serializer": "yaml"}, r"value_serializer='yaml': expected a function, an object, or one of string"),
        ({"value_serializer": int}, r"value_serializer=int: numbers have several forms"),
        ({"partitioner": hash}, r"partitioner is not a setting of this client"),
        (
            {"queue.buffering.max.ms": 5},
            r"queue\.buffering\.max\.ms is not a setting of this client: here it is linger\.ms",
        ),
        ({"max_batch_size": 5}, r"max_batch_size is not a setting of this client: here it is batch_size"),
        ({"message.timeout.ms": 5}, r"here it is delivery\.timeout\.ms"),
        ({"message.max.bytes": 5}, r"the topic's max\.message\.bytes bounds"),
        ({"error_cb": print}, r"errors are raised by the call"),
        ({"stats_cb": print}, r"call metrics\(\)"),
        ({"on_delivery": print}, r"give on_delivery to send"),
        (
            {"sasl_plain_username": "me"},
            r"sasl\.plain\.username is kafka-python's name: the option is sasl\.jaas\.config",
        ),
        ({"sasl.username": "me"}, r"sasl\.jaas\.config, as .*username=.*password="),
        ({"batch_size": 9, "batch_bytes": 9}, r"two names of one setting"),
        ({"ssl_cafile": "ca.pem"}, r"security\.protocol|ssl\.cafile"),
        ({"bootstrap_servers": "also:1"}, r"given twice"),
    ],
)
def test_a_wrong_setting_of_a_producer_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        Producer(NOBODY, **settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_poll_records": 0}, r"max_poll_records=0"),
        ({"session_timeout_ms": -1}, r"session_timeout_ms=-1"),
        ({"heartbeat_interval_ms": 45_000}, r"heartbeat_interval_ms=45000 must be less than session_timeout_ms"),
        ({"auto_commit_interval_ms": 0}, r"auto_commit_interval_ms=0"),
        ({"fetch_max_bytes": 0}, r"max_bytes=0"),
        ({"group_id": 5}, r"group_id=5: expected text"),
        ({"fetch.wait.max.ms": 5}, r"here it is fetch\.max\.wait\.ms"),
        ({"enable.partition.eof": True}, r"lag\(\) and end_offsets\(\) say where"),
        ({"enable.auto.offset.store": False}, r"commit\(record\)"),
        ({"rebalance_cb": print}, r"give on_assigned, on_revoked and on_lost to subscribe"),
        ({"auto.offset.reset": "smallest"}, r"expected earliest, latest or none"),
        ({"auto.offset.rest": "latest"}, r"did you mean auto\.offset\.reset\?"),
        ({"partition_assignment_strategy": "fair"}, r"'fair' is not one of range"),
        ({"group_protocol": "new"}, r"expected classic or consumer"),
    ],
)
def test_a_wrong_setting_of_a_consumer_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        Consumer(NOBODY, **settings)


def test_a_topic_in_the_place_of_the_addresses_is_told_where_topics_go() -> None:
    with pytest.raises(InvalidConfig, match=r"given twice: 'orders' stands where they are.*topics are given to subscr"):
        Consumer("orders", bootstrap_servers=NOBODY)


@pytest.mark.parametrize("bootstrap", [None, "", "localhost", 9092, ["localhost:9092", 9093]])
def test_an_address_that_is_none_is_told_what_is_expected(bootstrap: Any) -> None:
    for make in (Producer, Consumer, Admin):
        with pytest.raises(InvalidConfig, match="HOST:PORT"):
            make(bootstrap)


def test_what_is_said_of_other_clients_names_is_true() -> None:
    known = {option.kafka for kind in KINDS.values() for option in kind} | {"bootstrap.servers"}
    assert {name for name in SAME.values() if name not in known} == set()
    styled = {name.replace(".", "_") for name in known}
    assert styled & (SAME.keys() | ELSEWHERE.keys()) == set() and SAME.keys() & ELSEWHERE.keys() == set()


def test_editors_see_the_names_of_the_table() -> None:
    for kind, hints in {
        "client": ClientOptions,
        "producer": ProducerOptions,
        "consumer": ConsumerOptions,
        "share_consumer": ShareConsumerOptions,
    }.items():
        known = {option.kafka.replace(".", "_") for option in KINDS[kind]} | {option.ours for option in KINDS[kind]}
        own = set(get_type_hints(hints)) - (set(get_type_hints(ClientOptions)) if kind != "client" else set())
        others = {"bootstrap_servers"} | {name for name in own if name.startswith(("security_", "ssl_", "sasl_"))}
        assert own - others == known


def test_settings_of_every_client_are_an_admins_too() -> None:
    from headrace import Admin

    with Admin(NOBODY, client_id="till", default_api_timeout_ms=5) as admin:
        assert (admin.cluster.settings.client_id, admin.cluster.settings.api_timeout_ms) == ("till", 5)
