"""What was done, and whose answer is lost, is done once, whatever else fails meanwhile."""

from pathlib import Path

import pytest

from headrace.client import Consumer, Producer, ProducerSettings
from headrace.client.core.failures import DeadlineExceeded
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import LATEST, Admin, NewTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from tests.client.proxies import LosingProxy, PausableProxy, proxied
from tests.eventually import WITHIN_SECONDS, eventually

SMALL, PLAIN = "small-records", "plain"
BACKOFF_MS = 2_000
"""Long enough for a record of another topic to be refused before the retry."""


def test_a_refused_record_of_another_topic_makes_no_double(tmp_path: Path) -> None:
    client = ClientSettings(retry_backoff_ms=BACKOFF_MS, retry_backoff_max_ms=BACKOFF_MS)
    with proxied(tmp_path, LosingProxy) as proxy:
        bootstrap = f"127.0.0.1:{proxy.port}"
        with Admin(bootstrap) as admin, Producer(bootstrap, ProducerSettings(linger_ms=0), client) as producer:
            admin.create_topics([NewTopic(SMALL, 1, 1, {"max.message.bytes": "2000"}), NewTopic(PLAIN, 1, 1)])
            for topic in (SMALL, PLAIN):
                producer.send(topic, b"first").result(WITHIN_SECONDS)
            proxy.loses.set()
            unanswered = producer.send(PLAIN, b"second")
            assert proxy.has_lost.wait(WITHIN_SECONDS)
            with pytest.raises(KafkaError) as refused:
                producer.send(SMALL, bytes(5_000)).result(WITHIN_SECONDS)
            assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
            unanswered.result(WITHIN_SECONDS)
            producer.send(PLAIN, b"third").result(WITHIN_SECONDS)
            plain = TopicPartition(PLAIN, 0)
            assert admin.list_offsets({plain: LATEST})[plain].offset == 3


@pytest.mark.slow
def test_after_a_commit_without_an_answer_the_next_transaction_goes_on(tmp_path: Path) -> None:
    settings = ProducerSettings(transactional_id="till", max_block_ms=1_500)
    with proxied(tmp_path, PausableProxy) as proxy:
        bootstrap = f"127.0.0.1:{proxy.port}"
        with Admin(bootstrap) as admin:
            admin.create_topic(PLAIN, 1, 1)
        with Producer(bootstrap, settings, ClientSettings(request_timeout_ms=1_000)) as producer:
            producer.init_transactions(WITHIN_SECONDS * 1000)
            with pytest.raises(DeadlineExceeded), producer.transaction():
                producer.send(PLAIN, b"in doubt").result(WITHIN_SECONDS)
                proxy.goes_on.clear()
            proxy.goes_on.set()

            def goes_on() -> bool:
                try:
                    with producer.transaction():
                        producer.send(PLAIN, b"next")
                except DeadlineExceeded:  # a busy machine
                    return False
                return True

            eventually(goes_on, "a transaction after the one in doubt")
        with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
            consumer.assign([TopicPartition(PLAIN, 0)])
            eventually(lambda: b"next" in [each.value for each in consumer.poll(200)], "the record of the next one")
