"""A producer of headrace that keeps count of its transactions: each writes its number to every partition, some are
aborted, and a reader must find each that was committed once in each partition, and no other.

    with CountingTransactions(bootstrap, "t", partitions=3) as transactions:
        transactions.wait_for(10)               so many more are committed
        ...                                     brokers come and go
    assert not transactions.faults()
"""

import threading
from collections import Counter

from headrace.client import ClientSettings, Producer, ProducerSettings
from headrace.client.core.failures import DeadlineExceeded
from headrace.errors import KafkaError
from tests.cluster.transactional_clients import read_committed
from tests.eventually import WITHIN_SECONDS, eventually

ABORTED_EVERY = 7
PAUSE_S = 0.02


class CountingTransactions:
    """A producer on a thread of its own, from entering to leaving. `bootstrap` may be set while it runs."""

    def __init__(self, bootstrap: str, topic: str, *, partitions: int) -> None:
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.committed: list[int] = []
        self.unknown: list[int] = []
        self.errors: list[str] = []
        self.versions: set[int] = set()
        self._is_stopping, self._is_renewing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="counting-transactions", daemon=True)

    def __enter__(self) -> "CountingTransactions":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping.set()
        self._thread.join(2 * WITHIN_SECONDS)

    def state(self) -> str:
        """For a failure's report."""
        return (
            f"{len(self.committed)} commits, {len(self.unknown)} unknown, {len(self.errors)} errors {self.errors[-3:]}"
        )

    def renew(self) -> None:
        """Goes on with a new producer, which learns on its connections what the brokers can do now."""
        self._is_renewing.set()

    def wait_for(self, count: int) -> None:
        """Returns once that many more transactions are committed."""
        wanted = len(self.committed) + count
        eventually(lambda: len(self.committed) >= wanted, f"{wanted} commits", state=self.state)

    def faults(self) -> list[str]:
        """What the topic has too much or too little."""
        found = read_committed(self.bootstrap, self.topic, self.partitions)
        wrong = []
        for partition, values in found.items():
            counts = Counter(map(int, values))
            lost = [number for number in self.committed if counts[number] != 1]
            invented = sorted(counts.keys() - set(self.committed) - set(self.unknown))
            wrong += [f"{partition}: not once {lost[:9]}"] if lost else []
            wrong += [f"{partition}: not committed {invented[:9]}"] if invented else []
        for number in self.unknown:
            if len({values.count(str(number)) for values in found.values()}) > 1:
                wrong.append(f"{number} is in some partitions only")
        return wrong

    def _run(self) -> None:
        number, producer = 0, None
        while not self._is_stopping.is_set():
            try:
                if self._is_renewing.is_set() and producer is not None:
                    self._is_renewing.clear()
                    producer.close()
                    producer = None
                producer = producer or self._producer()
                self._transact(producer, number)
            except KafkaError as error:
                self.errors.append(f"{number}: {error}")
                producer = self._recovered(producer)
            number += 1
            self._is_stopping.wait(PAUSE_S)
        if producer is not None:
            producer.close(0)

    def _transact(self, producer: Producer, number: int) -> None:
        producer.begin()
        for partition in range(self.partitions):
            producer.send(self.topic, str(number).encode(), partition=partition)
        producer.flush()
        assert producer._transactions is not None
        self.versions.add(producer._transactions.version)
        if number % ABORTED_EVERY == 0:
            producer.abort()
            return
        self.unknown.append(number)
        while True:
            try:
                producer.commit()
                break
            except DeadlineExceeded as error:
                self.errors.append(f"{number}, again: {error}")
        self.committed.append(self.unknown.pop())

    def _recovered(self, producer: Producer | None) -> Producer | None:
        """The producer, if it can abort the transaction and go on."""
        if producer is None:
            return None
        try:
            producer.abort()
        except KafkaError:
            producer.close(0)
            return None
        return producer

    def _producer(self) -> Producer:
        settings = ProducerSettings(transactional_id=f"{self.topic}-id", delivery_timeout_ms=30_000)
        producer = Producer(self.bootstrap, settings, client=ClientSettings(request_timeout_ms=10_000))
        producer.init_transactions()
        return producer
