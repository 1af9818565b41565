"""The metadata store's JSON, byte for byte as Apache Kafka 3.9.2's own classes write it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata import uuids, znodes
from headrace.metadata.model import NO_UUID, Broker, Endpoint, PartitionLeadership, Replicas, Topic
from headrace.types import BrokerId, LeaderEpoch

TOPIC_ID = uuids.from_text("0sjTqGE0QfmGgaQnlg3lPg")


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


KAFKA = {
    b'{"version":2,"brokerid":7,"timestamp":"1700000000000","kraftControllerEpoch":-1}': znodes.encode_controller(
        7, 1700000000000
    ),
    b"12": znodes.encode_epoch(12),
    b'{"partitions":{"0":[1,2,3],"1":[2,1]},"topic_id":"0sjTqGE0QfmGgaQnlg3lPg","adding_replicas":{"0":[3]},'
    b'"removing_replicas":{"0":[1]},"version":3}': znodes.encode_topic(
        Topic("t", TOPIC_ID, {0: Replicas(ids(1, 2, 3), ids(3), ids(1)), 1: Replicas(ids(2, 1))})
    ),
    b'{"controller_epoch":4,"leader":1,"version":1,"leader_epoch":5,"isr":[2,1]}': znodes.encode_leadership(
        PartitionLeadership(BrokerId(1), LeaderEpoch(5), ids(2, 1), 4)
    ),
    b'{"version":"1","id":"0sjTqGE0QfmGgaQnlg3lPg"}': znodes.encode_cluster_id("0sjTqGE0QfmGgaQnlg3lPg"),
    b'{"version":1,"broker":3,"block_start":"5000","block_end":"5999"}': znodes.encode_producer_ids(
        znodes.ProducerIdBlock(BrokerId(3), 5000, 5999)
    ),
    b'{"version":1,"config":{"retention.ms":"-1"}}': znodes.encode_config({"retention.ms": "-1"}),
    b'{"version":2,"entity_path":"topics/t"}': znodes.encode_config_change("topics", "t"),
    b'{"features":{},"version":2,"status":1}': znodes.encode_feature(),
    b'{"features":{},"listener_security_protocol_map":{"INTERNAL":"PLAINTEXT","OUT":"SASL_SSL"},'
    b'"endpoints":["INTERNAL://h1:9092","OUT://[::1]:9093"],"rack":"r1","jmx_port":-1,"port":9092,"host":"h1",'
    b'"version":5,"timestamp":"1795258447649"}': znodes.encode_broker(
        Broker(BrokerId(4), (Endpoint("INTERNAL", "h1", 9092), Endpoint("OUT", "::1", 9093, "SASL_SSL")), "r1"),
        1795258447649,
    ),
    b'{"features":{},"listener_security_protocol_map":{"OUT":"SASL_SSL"},"endpoints":["OUT://[::1]:9093"],'
    b'"jmx_port":-1,"port":-1,"host":null,"version":5,"timestamp":"1795258447666"}': znodes.encode_broker(
        Broker(BrokerId(4), (Endpoint("OUT", "::1", 9093, "SASL_SSL"),)), 1795258447666
    ),
}


@pytest.mark.parametrize(("kafka", "ours"), KAFKA.items(), ids=lambda value: value[:40].decode())
def test_writes_what_apache_kafka_writes(kafka: bytes, ours: bytes) -> None:
    assert ours == kafka


def test_a_broker_is_read_back_with_its_epoch() -> None:
    broker = Broker(BrokerId(4), (Endpoint("IN", "h1", 9092), Endpoint("OUT", "::1", 9093, "SASL_SSL")), "r1", 17)
    assert znodes.decode_broker(4, znodes.encode_broker(broker, 0), 17) == broker


def test_a_broker_that_names_its_data_directory_says_whether_it_stopped_cleanly() -> None:
    crashed = Broker(BrokerId(4), (Endpoint("IN", "h1", 9092),), None, 17, is_clean=False, directory="d-1")
    for broker in (crashed, crashed._replace(is_clean=True)):
        assert znodes.decode_broker(4, znodes.encode_broker(broker, 0), 17) == broker
    assert b'"headrace":{"clean":false,"directory":"d-1"}' in znodes.encode_broker(crashed, 0)


def test_registrations_of_older_kafkas_are_read() -> None:
    old = b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2233345666"}'
    assert znodes.decode_broker(1, old, 5) == Broker(BrokerId(1), (Endpoint("PLAINTEXT", "h", 9092),), None, 5)
    second = (
        b'{"version":2,"host":"h","port":1,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://h:1","SSL://h:2"]}'
    )
    assert znodes.decode_broker(1, second, 5).endpoints[1] == Endpoint("SSL", "h", 2, "SSL")


def test_a_topic_without_an_id_is_read() -> None:
    old = b'{"version":1,"partitions":{"1":[2],"0":[1]}}'
    assert znodes.decode_topic("t", old) == Topic("t", NO_UUID, {0: Replicas(ids(1)), 1: Replicas(ids(2))})


replicas = st.builds(
    Replicas, *(st.lists(st.integers(0, 2**31 - 1), max_size=4).map(lambda numbers: ids(*numbers)) for _ in range(3))
)


@given(st.binary(min_size=16, max_size=16), st.dictionaries(st.integers(0, 99), replicas, max_size=5))
def test_topics_are_read_back(topic_id: bytes, partitions: dict[int, Replicas]) -> None:
    topic = Topic("t", topic_id, dict(sorted(partitions.items())))
    assert znodes.decode_topic("t", znodes.encode_topic(topic)) == topic


@given(st.integers(-2, 9), st.integers(0, 2**31 - 1), st.integers(0, 9), st.booleans())
def test_leaderships_are_read_back(leader: int, epoch: int, controller_epoch: int, recovering: bool) -> None:
    state = PartitionLeadership(
        BrokerId(leader), LeaderEpoch(epoch), ids(3, 1), controller_epoch, 6, 70, is_recovering=recovering
    )
    assert znodes.decode_leadership(znodes.encode_leadership(state), 6, 70) == state


LEADERSHIPS = st.builds(
    PartitionLeadership,
    st.integers(-1, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.lists(st.integers(0, 2**31 - 1), max_size=4).map(lambda numbers: ids(*numbers)),
    st.integers(0, 2**31 - 1),
    is_recovering=st.booleans(),
    eligible=st.lists(st.integers(0, 9), max_size=2).map(lambda numbers: ids(*numbers)),
)


@given(LEADERSHIPS)
def test_a_leadership_is_written_as_the_encoder_of_json_writes_it(state: PartitionLeadership) -> None:
    value = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        **({"leader_recovery_state": 1} if state.is_recovering else {}),
        **({"eligible_leader_replicas": list(state.eligible)} if state.eligible else {}),
    }
    assert znodes.encode_leadership(state) == znodes.dump_json(value)


@given(LEADERSHIPS, st.data())
def test_a_leadership_is_read_by_its_pattern_as_by_the_decoder_of_json(
    state: PartitionLeadership, data: st.DataObject
) -> None:
    node = bytearray(znodes.encode_leadership(state))
    if data.draw(st.booleans()):
        node[data.draw(st.integers(0, len(node) - 1))] = data.draw(st.sampled_from(b'0123456789-,:[]{}" \n\xb2'))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(znodes, "_plain_leadership", lambda data: None)
        expected = read_or_refused(bytes(node))
    assert read_or_refused(bytes(node)) == expected


def read_or_refused(node: bytes) -> PartitionLeadership | None:
    try:
        return znodes.decode_leadership(node, 6, 70)
    except znodes.CorruptNode:
        return None


@given(st.dictionaries(st.text(), st.text()))
def test_settings_are_read_back_whatever_their_letters(settings: dict[str, str]) -> None:
    assert znodes.decode_config(znodes.encode_config(settings)) == settings


KEYS = st.sampled_from(["version", "brokerid", "partitions", "leader", "isr", "endpoints", "id", "topic_id", "config"])
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5))
SHALLOW = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.text(max_size=2), LEAVES, max_size=3)
GARBAGE = st.binary(max_size=40) | SHALLOW.map(znodes.dump_json) | st.dictionaries(KEYS, SHALLOW).map(znodes.dump_json)


@given(GARBAGE)
def test_garbage_is_a_typed_error_or_a_value(data: bytes) -> None:
    for decode in (
        znodes.decode_controller,
        znodes.decode_epoch,
        znodes.decode_config,
        znodes.decode_config_change,
        znodes.decode_cluster_id,
        znodes.decode_producer_ids,
        lambda data: znodes.decode_broker(1, data, 1),
        lambda data: znodes.decode_topic("t", data),
        lambda data: znodes.decode_leadership(data, 1, 1),
    ):
        try:
            decode(data)
        except znodes.CorruptNode:
            continue


@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_22_characters_and_back(uuid: bytes) -> None:
    assert len(uuids.to_text(uuid)) == 22
    assert uuids.from_text(uuids.to_text(uuid)) == uuid


def test_random_ids_are_no_option_on_a_command_line() -> None:
    made = {uuids.to_text(uuids.random_uuid()) for _ in range(500)}
    assert len(made) == 500
    assert not any(text.startswith("-") for text in made)


@pytest.mark.parametrize(
    "text", ["", "short", "0sjTqGE0QfmGgaQnlg3lPgAA", "0sjTqGE0QfmGgaQnlg3l/g", "ééééééééééééééééééééé!"]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        uuids.from_text(text)
