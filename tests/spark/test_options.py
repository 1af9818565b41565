"""What a user may write as options of a read, and what the errors say."""

import pytest

from headrace.spark.source.options import (
    COLUMNS,
    KNOWN_OPTIONS,
    Assign,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Earliest,
    Latest,
    OptionError,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    parse_options,
)
from headrace.types import TopicPartition

NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "flights"}
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


def parse(**options: str) -> SourceOptions:
    return parse_options({**NEEDED, **options})


def test_a_broker_and_a_topic_are_enough() -> None:
    options = parse()
    assert options.selection == Subscribe(("flights",))
    assert (options.starting, options.ending) == (Earliest(), Latest())
    assert options.columns == COLUMNS
    assert options.fail_on_data_loss and not options.include_headers


def test_names_are_not_case_sensitive() -> None:
    options = parse_options({"KAFKA.Bootstrap.Servers": "b:1", "SUBSCRIBE": "t", "startingoffsets": "Earliest"})
    assert options.bootstrap_servers == "b:1"
    assert options.starting == Earliest()


def test_assign_names_partitions() -> None:
    options = parse_options({**{k: v for k, v in NEEDED.items() if k != "subscribe"}, "assign": '{"t":[1,0,1]}'})
    assert options.selection == Assign((TopicPartition("t", 1), TopicPartition("t", 0)))


def test_subscribe_takes_many_topics_once_each() -> None:
    assert parse(subscribe=" a, b ,a").selection == Subscribe(("a", "b"))


def test_subscribe_pattern_is_kept_as_text() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "subscribePattern": "flights-.*"}
    assert parse_options(given).selection == SubscribePattern("flights-.*")


def test_a_time_beats_times_by_partition_and_these_beat_offsets() -> None:
    by_time, offsets = '{"flights":{"0":5,"1":6}}', '{"flights":{"0":1,"1":-2}}'
    options = parse(startingTimestamp="7", startingOffsetsByTimestamp=by_time, startingOffsets=offsets)
    assert options.starting == AtTimestamp(7, "startingTimestamp")
    options = parse(startingOffsetsByTimestamp=by_time, startingOffsets=offsets)
    assert options.starting == AtTimestamps({P0: 5, P1: 6}, "startingOffsetsByTimestamp")
    options = parse(startingOffsets=offsets)
    assert options.starting == AtOffsets({P0: 1, P1: -2}, "startingOffsets")


def test_ending_options_have_the_same_precedence() -> None:
    options = parse(endingTimestamp="9", endingOffsets="latest")
    assert options.ending == AtTimestamp(9, "endingTimestamp")
    assert parse(endingOffsets='{"flights":{"0":-1,"1":4}}').ending == AtOffsets({P0: -1, P1: 4}, "endingOffsets")


def test_include_headers_adds_their_column() -> None:
    assert parse(includeHeaders="true").columns == (*COLUMNS, "headers")
    assert parse(includeHeaders="TRUE", columns="value").columns == ("value", "headers")


def test_columns_come_in_the_order_asked_for() -> None:
    assert parse(columns="offset, VALUE,timestamptype").columns == ("offset", "value", "timestampType")


def test_kafka_settings_lose_their_prefix() -> None:
    assert parse(**{"kafka.client.id": "me"}).client_settings == {"client.id": "me"}


def test_options_of_streams_and_of_the_jvm_consumer_are_accepted() -> None:
    parse(maxOffsetsPerTrigger="10", groupIdPrefix="x", **{"kafkaConsumer.pollTimeoutMs": "9", "kafka.group.id": "g"})


def test_every_documented_option_is_known() -> None:
    connector = (
        "assign subscribe subscribePattern startingTimestamp startingOffsetsByTimestamp startingOffsets "
        "endingTimestamp endingOffsetsByTimestamp endingOffsets failOnDataLoss "
        "kafkaConsumer.pollTimeoutMs fetchOffset.numRetries "
        "fetchOffset.retryIntervalMs maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay minPartitions "
        "maxRecordsPerPartition groupIdPrefix includeHeaders startingOffsetsByTimestampStrategy"
    )
    assert set(connector.split()) <= set(KNOWN_OPTIONS)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers: is needed"),
        ({"subscribe": " , "}, "name at least one topic"),
        ({"assign": '{"t":[0]}'}, "exactly one says what to read; 2 of them"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"startingOffsets": "latest"}, "a batch read cannot start at latest"),
        ({"endingOffsets": "earliest"}, "a batch read cannot end at earliest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "cannot start at -1"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "cannot end at -2"),
        ({"startingOffsets": "soon"}, "write JSON like"),
        ({"startingOffsets": '{"t":[0]}'}, "'t' has no object of partitions"),
        ({"startingOffsets": '{"t":{"x":0}}'}, "'x' is not a partition"),
        ({"startingOffsets": '{"t":{"0":1.5}}'}, "1.5 is not a whole number"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "-3 is not a whole number from -2 on"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "-1 is not a whole number from 0 on"),
        ({"startingTimestamp": "2013-01-01"}, "write milliseconds since 1970-01-01 UTC"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "is error or latest"),
        ({"failOnDataLoss": "no"}, "is true or false"),
        ({"minPartitions": "0"}, "is a whole number from 1 on"),
        ({"maxRecordsPerPartition": "many"}, "is a whole number from 1 on"),
        ({"columns": "value,size"}, "name some of key,value,topic"),
        ({"columns": "value,value"}, "each once"),
        ({"kafka.auto.offset.reset": "earliest"}, "say where to start with startingOffsets"),
        ({"kafka.security.protocol": "TLS"}, "is none of PLAINTEXT, SSL"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "set kafka.security.protocol=SASL_SSL"),
        ({"kafka.ssl.trustore.location": "x"}, "did you mean kafka.ssl.truststore.location"),
    ],
)
def test_an_error_names_the_option_its_value_and_what_to_do(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(**options)
    message = str(caught.value)
    assert says in message
    name, value = list(options.items())[-1]
    if name not in ("assign", "kafka.bootstrap.servers"):
        assert f"{name} = {value!r}" in message


def test_a_pattern_must_be_a_regular_expression() -> None:
    with pytest.raises(OptionError, match="is not a regular expression"):
        parse_options({"kafka.bootstrap.servers": "b:1", "subscribePattern": "("})


def test_assign_must_name_partitions() -> None:
    for wrong in ("flights", '{"t":0}', '{"t":[-1]}', "{}"):
        with pytest.raises(OptionError, match="assign"):
            parse_options({"kafka.bootstrap.servers": "b:1", "assign": wrong})
