"""The clients of the grid."""

from tests.conformance.model import Client
from tests.conformance.with_aiokafka import AioKafka
from tests.conformance.with_confluent_kafka import ConfluentKafka
from tests.conformance.with_headrace import Headrace
from tests.conformance.with_kafka_python import KafkaPython
from tests.conformance.with_kcat import Kcat
from tests.conformance.with_programs import PROGRAMS

CLIENTS: tuple[Client, ...] = (ConfluentKafka(), AioKafka(), KafkaPython(), Kcat(), Headrace(), *PROGRAMS)
