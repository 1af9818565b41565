"""Clients that authenticate as they should, or cheat, and what they ask."""

import base64
import hashlib
import hmac
import os
from itertools import count
from typing import Self

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.testing import Broker
from tests.asker import Asker
from tests.eventually import eventually
from tests.wire import batch

PASSWORDS = {"admin": "of-the-admin", "alice": "of-alice", "mallory": "of-mallory"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
SCRAM_ITERATIONS = 4096
TOPIC_RESOURCE, GROUP_RESOURCE, CLUSTER_RESOURCE, TRANSACTIONAL_ID = 2, 3, 4, 5
READ, WRITE, DESCRIBE = 3, 4, 8
LITERAL, ALLOW = 3, 3
SCRAM_256 = 1
_names = count()


class Refused(Exception):
    """SaslAuthenticate was answered with an error."""

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(message)
        self.code, self.message = ErrorCode(code), message or ""


class Client(Asker):
    """A connection that authenticates."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.bootstrap)

    def __enter__(self) -> Self:
        return self

    def mechanism(self, name: str) -> None:
        answer = self.ask(m.SaslHandshakeRequest(mechanism=name), 1)
        assert answer.error_code == ErrorCode.NONE

    def authenticate(self, data: bytes) -> bytes:
        answer = self.ask(m.SaslAuthenticateRequest(auth_bytes=data), 2)
        if answer.error_code:
            raise Refused(answer.error_code, answer.error_message)
        return bytes(answer.auth_bytes)

    def plain(self, user: str, password: str | None = None, authzid: str = "") -> None:
        self.mechanism("PLAIN")
        self.authenticate(f"{authzid}\0{user}\0{PASSWORDS[user] if password is None else password}".encode())


def as_user(broker: Broker, user: str) -> Client:
    client = Client(broker)
    client.plain(user)
    return client


class Scram:
    """The client's part of SCRAM-SHA-256, which can be made to cheat."""

    def __init__(self, user: str, password: str, header: str = "n,,") -> None:
        self.user, self.password, self.header = user, password, header
        self.nonce = base64.b64encode(os.urandom(18)).decode()
        self.bare = f"n={user},r={self.nonce}"

    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def final(self, server_first: bytes, *, nonce: str | None = None) -> bytes:
        fields = dict(each.split("=", 1) for each in server_first.decode().split(","))
        said = base64.b64encode(self.header.encode()).decode()
        without_proof = f"c={said},r={fields['r'] if nonce is None else nonce}"
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        message = f"{self.bare},{server_first.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def new_topic(broker: Broker) -> str:
    name = f"topic-{next(_names)}"
    with as_user(broker, "admin") as admin:
        topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        [answer] = admin.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5).topics
        assert answer.error_code == 0
        eventually(lambda: produce(admin, name).error_code == 0, "a leader")
    return name


def allow(broker: Broker, user: str, operation: int, resource: int, name: str) -> None:
    acl = m.CreateAclsRequest.AclCreation(
        resource_type=resource, resource_name=name, resource_pattern_type=LITERAL, principal=f"User:{user}",
        host="*", operation=operation, permission_type=ALLOW,
    )  # fmt: skip
    with as_user(broker, "admin") as admin:
        [answer] = admin.ask(m.CreateAclsRequest(creations=[acl]), 2).results
    assert answer.error_code == 0


def produce(
    client: Asker, topic: str, records: bytes | None = None, transactional_id: str | None = None
) -> m.ProduceResponse.PartitionProduceResponse:
    data = m.ProduceRequest.PartitionProduceData(index=0, records=records or batch([b"v"]))
    topics = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    request = m.ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=10_000, topic_data=topics)
    found: m.ProduceResponse.PartitionProduceResponse = client.ask(request, 7).responses[0].partition_responses[0]
    return found


def fetch(client: Asker, topic: str, replica_id: int = -1) -> m.FetchResponse:
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [m.FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    request = m.FetchRequest(replica_id=replica_id, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)
    found: m.FetchResponse = client.ask(request, 11)
    return found
