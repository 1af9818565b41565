"""APIs with a few questions each, asked of headrace and of Apache Kafka; and that every API has a scenario."""

import importlib
import sys
from pathlib import Path

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.deliberate import Differs
from tests.differential.scenario import SCENARIOS, scenario

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from apache_kafka_apis import APACHE_KAFKA, NOT_SERVED

SHARE_STATE = "tests/broker/test_share_state_beside_kafka.py"
TELEMETRY = "tests/broker/telemetry/test_clients_that_push.py"
ELSEWHERE = {
    71: TELEMETRY, 72: TELEMETRY, 83: SHARE_STATE, 84: SHARE_STATE, 85: SHARE_STATE, 86: SHARE_STATE, 87: SHARE_STATE,
}  # fmt: skip
"""Where APIs are tested that a broker alone refuses, or that Apache Kafka serves with a plug-in only."""
MECHANISM_256, MECHANISM_512 = 1, 2


def test_every_api_of_apache_kafka_has_a_scenario() -> None:
    for module in Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(f"tests.differential.{module.stem}")
    served = {key for key, (newest, _) in APACHE_KAFKA.items() if newest is not None} - NOT_SERVED.keys()
    assert served - SCENARIOS == ELSEWHERE.keys()
    for file in ELSEWHERE.values():
        assert (Path(__file__).parents[2] / file).exists()


@scenario(ApiKey.ALTER_REPLICA_LOG_DIRS)
def test_moves_replicas_to_no_directory_that_is_not_there(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    Directory, Topic = (
        m.AlterReplicaLogDirsRequest.AlterReplicaLogDir,
        m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic,
    )
    for path in ("/no/such/directory", "relative", ""):
        for name, partitions in ((topic, [0, 1, 7]), (ask.name("missing"), [0]), ("", [0])):
            wanted = Directory(path=path, topics=[Topic(name=name, partitions=partitions)])
            ask(m.AlterReplicaLogDirsRequest(dirs=[wanted]))
    ask(m.AlterReplicaLogDirsRequest())


def upsert(
    name: str, mechanism: int, iterations: int = 4096
) -> m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    """A credential of a user."""
    return m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt" * 8, salted_password=b"password" * 4
    )


def delete(name: str, mechanism: int) -> m.AlterUserScramCredentialsRequest.ScramCredentialDeletion:
    """The end of a credential."""
    return m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


@scenario(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
def test_alters_credentials(ask: Conversation) -> None:
    ann, ben = ask.name("ann"), ask.name("ben")
    Request = m.AlterUserScramCredentialsRequest
    ask(Request())
    ask(Request(upsertions=[upsert(ann, MECHANISM_256), upsert(ben, MECHANISM_512)]))
    users = [m.DescribeUserScramCredentialsRequest.UserName(name=each) for each in (ann, ben, ask.name("nobody"))]
    described = m.DescribeUserScramCredentialsRequest(users=users)
    ask.settle(lambda found: sum(each.error_code == 0 for each in found.results) == 2, described, 0)
    ask(described, 0)
    for name, mechanism, iterations in (
        (ann, 0, 4096), (ann, 3, 4096), (ann, MECHANISM_256, 4095), (ann, MECHANISM_256, 16385),
        ("", MECHANISM_256, 4096),
    ):  # fmt: skip
        ask(Request(upsertions=[upsert(name, mechanism, iterations)]))
    ask(Request(upsertions=[upsert(ann, MECHANISM_256), upsert(ann, MECHANISM_256)]))
    ask(Request(upsertions=[upsert(ann, MECHANISM_256)], deletions=[delete(ann, MECHANISM_256)]))
    ask(Request(deletions=[delete(ask.name("nobody"), MECHANISM_256), delete(ben, MECHANISM_512)]))
    ask(Request(deletions=[delete(ann, 0), delete("", MECHANISM_256)]))
    ask(Request(deletions=[delete(ann, MECHANISM_256)]))  # other scenarios describe all users


@scenario(ApiKey.SASL_HANDSHAKE)
def test_a_handshake_where_there_is_no_authentication(ask: Conversation) -> None:
    ask(m.SaslHandshakeRequest(mechanism="PLAIN"))
    ask(m.SaslHandshakeRequest(mechanism=""))


@scenario(ApiKey.SASL_AUTHENTICATE)
def test_an_authentication_where_there_is_none(ask: Conversation) -> None:
    ask(m.SaslAuthenticateRequest(auth_bytes=b"\0user\0password"))


@scenario(ApiKey.CREATE_DELEGATION_TOKEN)
def test_creates_no_token_without_authentication(ask: Conversation) -> None:
    ask(m.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1))


@scenario(ApiKey.RENEW_DELEGATION_TOKEN)
def test_renews_no_token_without_authentication(ask: Conversation) -> None:
    ask(m.RenewDelegationTokenRequest(hmac=b"nothing", renew_period_ms=-1))


@scenario(ApiKey.EXPIRE_DELEGATION_TOKEN)
def test_expires_no_token_without_authentication(ask: Conversation) -> None:
    ask(m.ExpireDelegationTokenRequest(hmac=b"nothing", expiry_time_period_ms=-1))


@scenario(ApiKey.DESCRIBE_DELEGATION_TOKEN)
def test_describes_no_token_without_authentication(ask: Conversation) -> None:
    ask(m.DescribeDelegationTokenRequest(owners=None))
    Owner = m.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    ask(m.DescribeDelegationTokenRequest(owners=[Owner(principal_type="User", principal_name="ann")]))


@scenario(
    ApiKey.DESCRIBE_QUORUM,
    differs=[
        Differs(
            "DescribeQuorum.error_code",
            "there is no quorum: the answer is a typed error with the reason, which kafka-metadata-quorum prints",
            ours="UNSUPPORTED_VERSION",
            theirs="NONE",
        )
    ],
)
def test_describes_the_quorum(ask: Conversation) -> None:
    Topic, Partition = m.DescribeQuorumRequest.TopicData, m.DescribeQuorumRequest.PartitionData
    topic = Topic(topic_name="__cluster_metadata", partitions=[Partition(partition_index=0)])
    request = m.DescribeQuorumRequest(topics=[topic])
    answer = ask.quietly(request)
    ask.record(request, ask.version, m.DescribeQuorumResponse(error_code=answer.error_code))  # without voters
