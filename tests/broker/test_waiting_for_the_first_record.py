"""A consumer that waits at the beginning of an empty partition, while the leader's epoch grows, gets the first record.

It asks with OffsetForLeaderEpoch whether its position still exists. If the leader did not know, the consumer would
reset the position, by default to the end: it would miss all that was written in between.
"""

import json

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from headrace.protocol import messages as m
from tests.asker import Asker
from tests.conftest import StartHeadrace
from tests.eventually import WITHIN_SECONDS, eventually

pytestmark = pytest.mark.slow  # a broker that starts twice


def epochs_and_ends(bootstrap: str, topic: str, *epochs: int) -> list[tuple[int, int]]:
    """The leader's answer for each epoch."""
    kind = m.OffsetForLeaderEpochRequest
    answers = []
    with Asker(bootstrap) as asker:
        for epoch in epochs:
            wanted = kind.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
            topics = [kind.OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
            (answer,) = asker.ask(kind(replica_id=-1, topics=topics), 4).topics[0].partitions
            assert answer.error_code == 0
            answers.append((answer.leader_epoch, answer.end_offset))
    return answers


def test_a_change_of_the_leader_before_the_first_record_resets_nobody(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    with Asker(server.bootstrap) as asker:
        topic = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        (created,) = asker.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics
        assert created.error_code == 0
    states: list[str] = []
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "log_level": 0,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # a reset is an error and not a question of who was faster
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 200,
            "statistics.interval.ms": 50,
            "stats_cb": states.append,
        }
    )
    try:
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        eventually(lambda: _came(consumer) == KafkaError._PARTITION_EOF, "the end of the empty partition")
        eventually(lambda: _came(consumer) is None and _fetches_in_epoch(states, 0), "a fetch in the first epoch")

        server.kill()
        server.restart()

        assert epochs_and_ends(server.bootstrap, "t", 0, 1, 2) == [(0, 0), (1, 0), (-1, -1)]
        eventually(lambda: _came(consumer) is None and _fetches_in_epoch(states, 1), "a fetch in the second epoch")
        producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
        producer.produce("t", b"first")
        assert producer.flush(WITHIN_SECONDS) == 0
        eventually(lambda: _came(consumer) == b"first", "the first record")
    finally:
        consumer.close()


def _fetches_in_epoch(states: list[str], epoch: int) -> bool:
    """Whether the consumer knows this leader epoch, and has asked whether its position exists there."""
    if not states:
        return False
    (topic,) = json.loads(states[-1])["topics"].values()
    partition = topic["partitions"]["0"]
    return (partition["leader_epoch"], partition["fetch_state"]) == (epoch, "active")


def _came(consumer: Consumer) -> bytes | int | None:
    """A record's value, the code of an event, or None. A reset is an AssertionError."""
    message = consumer.poll(0.2)
    if message is None:
        return None
    error = message.error()
    if error is None:
        return message.value()
    assert error.code() not in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION), error
    return error.code()
