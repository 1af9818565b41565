"""The options of a write, batch or stream: text from the user in, one checked value out.

    kafka.bootstrap.servers   host:port, comma-separated; needed
    topic                     where all rows go; without it the column `topic` says it for each
    idempotent                true | false: whether a task that runs again leaves out what it finds written (true);
                              needs acks=all and an idempotent producer, which are the defaults
    transactional             true | false: whether a task writes in a transaction that the driver commits (false)
    writeId                   batch: a name for this write, so that doing it again under that name adds nothing
    includeHeaders            true | false: false leaves out a column `headers` (true)
    kafka.acks, .compression.type, .linger.ms, .batch.size, .buffer.memory, .max.request.size, .max.block.ms,
    .delivery.timeout.ms, .enable.idempotence                       as in Kafka's producer
    kafka.transaction.timeout.ms   how long a batch may take from a task's first row to the driver's commit (15 min)
    other kafka.*             as in `cluster_access`

The columns of the rows are those of the connector: value (binary or string), and where wanted key (binary or string),
topic, partition, headers; others are left aside. Source: Spark's KafkaWriter.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from headrace.client.producer.producer import ACKS, ProducerSettings
from headrace.client.security.secrets import SecretOptions
from headrace.errors import InvalidConfig
from headrace.spark.option_values import OptionError, boolean, bootstrap_servers, sort_out
from headrace.spark.source.cluster_access import whole_setting
from headrace.topics import OFFSETS_TOPIC
from headrace.types import TopicPartition

KNOWN_OPTIONS: Final = ("topic", "idempotent", "transactional", "writeId", "includeHeaders")
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""What DataStreamWriter passes on of its own options."""
_REFUSED_KAFKA: Final = MappingProxyType(
    {
        "key.serializer": "keys are binary or string columns; convert them with DataFrame functions",
        "value.serializer": "values are binary or string columns; convert them with DataFrame functions",
        "interceptor.classes": "interceptors are Java classes; remove it",
        "partitioner.class": "partitioners are Java classes; fill the column partition instead",
        "transactional.id": "each task has its own; remove it, and see the option transactional",
    }
)
_TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Kafka's transaction.max.timeout.ms: a task's transaction stays open until the driver commits the batch."""
_WRITE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_BYTES: Final = (BinaryType, StringType)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of a write. `client_settings` are the kafka.* options without their prefix."""

    bootstrap_servers: str
    topic: str | None
    is_idempotent: bool
    is_transactional: bool
    write_id: str | None
    with_headers: bool
    producer: ProducerSettings
    client_settings: Mapping[str, str]

    @property
    def place(self) -> TopicPartition:
        """The partition at which groups of the sink commit their offsets: one that exists."""
        return TopicPartition(self.topic or OFFSETS_TOPIC, 0)


def parse_sink_options(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> SinkOptions:
    """Check the options and the columns of the rows. The OptionError names the first error."""
    ours = {name: value for name, value in given.items() if name.lower() not in _SPARKS_OWN}
    options, kafka = sort_out(ours, KNOWN_OPTIONS, _REFUSED_KAFKA)
    if overwrite:
        raise OptionError("mode", "overwrite", "a log is only ever appended to; use mode('append')")
    topic = options.get("topic", "").strip() or None
    _check_columns(schema, topic)
    write_id = options.get("writeId")
    if write_id is not None and not _WRITE_ID.fullmatch(write_id):
        raise OptionError("writeId", write_id, "use letters, digits, dots, dashes and underscores, 128 at most")
    is_transactional = boolean(options, "transactional", default=False)
    is_idempotent = boolean(options, "idempotent", default=not is_transactional)
    if is_transactional:
        _check_transactional(options, kafka)
    elif _TRANSACTION_TIMEOUT in kafka:
        name = f"kafka.{_TRANSACTION_TIMEOUT}"
        raise OptionError(
            name, kafka[_TRANSACTION_TIMEOUT], "there are no transactions; set transactional=true, or remove it"
        )
    if is_idempotent:
        _check_idempotent_producer(kafka, "the idempotent mode needs", "idempotent=false")
    return SinkOptions(
        bootstrap_servers=bootstrap_servers(kafka),
        topic=topic,
        is_idempotent=is_idempotent,
        is_transactional=is_transactional,
        write_id=write_id,
        with_headers=boolean(options, "includeHeaders", default=True) and "headers" in schema.names,
        producer=_producer_settings(kafka),
        client_settings=SecretOptions({key: value for key, value in kafka.items() if key != "bootstrap.servers"}),
    )


def _check_transactional(options: Mapping[str, str], kafka: Mapping[str, str]) -> None:
    if boolean(options, "idempotent", default=False):
        does = "is the other mode: transactions do not need it; remove it, or set transactional=false"
        raise OptionError("idempotent", options["idempotent"], does)
    _check_idempotent_producer(kafka, "transactions need", "transactional=false")


def _check_idempotent_producer(kafka: Mapping[str, str], need: str, instead: str) -> None:
    acks = kafka.get("acks", "all").strip().lower()
    if ACKS.get(acks, ACKS["all"]) != ACKS["all"]:  # one that does not exist is refused by the producer
        raise OptionError("kafka.acks", acks, f"{need} all; remove it, or set {instead}")
    if not boolean(kafka, "enable.idempotence", default=True):
        value = kafka["enable.idempotence"]
        raise OptionError("kafka.enable.idempotence", value, f"{need} it; remove it, or set {instead}")


def _producer_settings(kafka: Mapping[str, str]) -> ProducerSettings:
    default = ProducerSettings()
    try:
        settings = ProducerSettings(
            acks=kafka.get("acks", str(default.acks)).strip().lower(),
            compression=kafka.get("compression.type", default.compression).strip().lower(),
            idempotence=boolean(kafka, "enable.idempotence", default=True) if "enable.idempotence" in kafka else None,
            linger_ms=whole_setting(kafka, "linger.ms", int(default.linger_ms)),
            batch_bytes=whole_setting(kafka, "batch.size", default.batch_bytes),
            request_bytes=whole_setting(kafka, "max.request.size", default.request_bytes),
            buffer_memory_bytes=whole_setting(kafka, "buffer.memory", default.buffer_memory_bytes),
            max_block_ms=whole_setting(kafka, "max.block.ms", default.max_block_ms),
            delivery_timeout_ms=whole_setting(kafka, "delivery.timeout.ms", default.delivery_timeout_ms),
            transaction_timeout_ms=whole_setting(kafka, _TRANSACTION_TIMEOUT, _TRANSACTION_TIMEOUT_MS),
        )
        settings.policy(request_timeout_ms=0)
    except InvalidConfig as wrong:
        raise OptionError("kafka.*", None, f"of the producer: {wrong.message}") from wrong
    return settings


def _check_columns(schema: StructType, topic: str | None) -> None:
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise OptionError("value", None, "the rows have no such column; name the bytes to write `value`")
    if topic is None and "topic" not in types:
        raise OptionError("topic", None, "say where the rows go: set the option, or give them a column `topic`")
    for name, kind in types.items():
        wanted = _wanted(name, kind)
        if wanted is not None:
            raise OptionError(name, None, f"the column is {kind.simpleString()}, but must be {wanted}")


def _wanted(name: str, kind: DataType) -> str | None:
    """The expected type of a column that has another type."""
    match name:
        case "key" | "value":
            return None if isinstance(kind, _BYTES) else "binary or string"
        case "topic":
            return None if isinstance(kind, StringType) else "string"
        case "partition":
            return None if isinstance(kind, IntegerType) else "int"
        case "headers":
            return None if _is_headers(kind) else "array<struct<key:string,value:binary>>"
        case _:
            return None


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]
