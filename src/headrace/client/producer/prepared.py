"""Prepared transactions: complete, but open, until somebody else commits or aborts them.

    producer                                          coordinator of many producers
    prepare_transaction() ──▶ PreparedTransaction ──▶ end_prepared(cluster, prepared, is_commit=True)
    close()                   (may be pickled)        again, as often as necessary

This is the first phase of a commit in two phases: workers write, and one process decides for all of them. Any process
that has the PreparedTransaction can end it, since it names the producer's id and epoch. A prepared transaction ends in
three other ways: the coordinator aborts it at its `transaction_timeout_ms`, which counts from its first record; a
producer with the same transactional id is initialized, which aborts it; an operator aborts it.

`end_prepared` may be repeated: the coordinator answers a repeated request as the first one, as long as no later
producer with the same id was initialized. Source: Kafka's `TransactionCoordinator.endTransaction`. KIP-939 adds
transactions without time-out; Apache Kafka 4.3 does not serve it yet.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection
from headrace.client.core.coordinator_link import TRANSACTION, CoordinatorLink
from headrace.client.core.failures import error_for
from headrace.client.core.timing import Deadline
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

EPOCH_BUMPED_FROM = 2
"""The transaction.version from which on a transaction's end gives the producer a new epoch (KIP-890)."""

NOT_OPEN = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
"""Errors of `end_prepared` that are final: the transaction ended in another way, or a later producer took over."""

_NEWEST_WITHOUT_BUMP = {ApiKey.END_TXN: 4, ApiKey.PRODUCE: 11, ApiKey.TXN_OFFSET_COMMIT: 4}
_ENDED_AT_ONCE_MAX = 8

_FENCED = "; another producer with this id was started, or the transaction timed out"
_HINTS = {
    int(ErrorCode.PRODUCER_FENCED): _FENCED,
    int(ErrorCode.INVALID_PRODUCER_EPOCH): _FENCED,
    int(ErrorCode.INVALID_TRANSACTION_TIMEOUT): "; it is longer than transaction.max.timeout.ms of the brokers",
}


class PreparedTransaction(NamedTuple):
    """An open transaction of a producer that is done with it. It holds no secret."""

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: int
    """The level of transaction.version that it was written with."""


def end_prepared(
    cluster: Cluster, prepared: PreparedTransaction, *, is_commit: bool, timeout_ms: float | None = None
) -> None:
    """Commits or aborts a prepared transaction; it may be repeated.

    When it returns, the decision is stored, and the coordinator writes the markers: records become visible within
    moments. Raises `KafkaError` with a code in `NOT_OPEN` if the transaction cannot be ended in this way any more, and
    `DeadlineExceeded` if the outcome is not known after `timeout_ms` (None: the client's API timeout).
    """
    deadline = cluster.deadline() if timeout_ms is None else Deadline.after_ms(timeout_ms)
    link = CoordinatorLink(cluster, prepared.transactional_id, TRANSACTION)
    try:
        link.call(lambda to, limit: request_end(to, limit, prepared, is_commit=is_commit), deadline)
    finally:
        link.close()


def end_all_prepared(
    cluster: Cluster, prepared: Collection[PreparedTransaction], *, is_commit: bool
) -> dict[PreparedTransaction, KafkaError]:
    """Ends many prepared transactions, some at a time; returns those that failed, with their errors."""

    def end(one: PreparedTransaction) -> KafkaError | None:
        try:
            end_prepared(cluster, one, is_commit=is_commit)
        except KafkaError as error:
            return error
        return None

    if not prepared:
        return {}
    from concurrent.futures import ThreadPoolExecutor  # of what most producers never do

    with ThreadPoolExecutor(min(_ENDED_AT_ONCE_MAX, len(prepared)), "headrace-end-prepared") as threads:
        errors = zip(prepared, threads.map(end, prepared), strict=True)
        return {one: error for one, error in errors if error is not None}


def request_end(
    connection: Connection, limit: Deadline, transaction: PreparedTransaction, *, is_commit: bool
) -> m.EndTxnResponse:
    """One EndTxn request. Raises `KafkaError` for an error in its response."""
    request = m.EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        committed=is_commit,
    )
    version = version_for(connection, ApiKey.END_TXN, transaction.transaction_version)
    answer = connection.call(request, m.EndTxnResponse, limit, version)
    check(answer.error_code, transaction.transactional_id, "commit" if is_commit else "abort")
    return answer


def version_for(connection: Connection, api_key: ApiKey, transaction_version: int) -> int:
    """The version of a request that matches the transaction's version."""
    newest = None if transaction_version >= EPOCH_BUMPED_FROM else _NEWEST_WITHOUT_BUMP[api_key]
    return connection.versions.choose(api_key, newest)


def check(code: int, transactional_id: str, what: str) -> None:
    """Raises `KafkaError` if `code` is an error, with a hint where the code alone does not say what happened."""
    if code:
        raise error_for(code, f"transactional id {transactional_id}: {what}{_HINTS.get(code, '')}")
