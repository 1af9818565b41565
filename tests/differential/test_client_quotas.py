"""AlterClientQuotas and DescribeClientQuotas, asked of headrace and of Apache Kafka."""

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.broker.quota_requests import alter, describe
from tests.differential.conversation import Conversation
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

ALTER, DESCRIBE = ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_CLIENT_QUOTAS
EXACT, DEFAULT, ANY = range(3)


@scenario(ALTER)
def test_sets_and_removes_quotas(ask: Conversation) -> None:
    user, client = ask.name("user"), ask.name("client")
    for entity in (
        {"user": user},
        {"client_id": client},
        {"user": user, "client_id": client},
        {"user": user, "client_id": None},
    ):
        ask(alter(entity, producer_byte_rate=1024, consumer_byte_rate=2048))
        ask(alter(entity, producer_byte_rate=None, request_percentage=12.5, controller_mutation_rate=0.5))
        ask(alter(entity, no_such_quota=None))
        ask(alter(entity, consumer_byte_rate=None, request_percentage=None, controller_mutation_rate=None))
    ask(alter({"ip": "127.1.2.3"}, connection_creation_rate=100))
    ask(alter({"ip": "127.1.2.3"}, connection_creation_rate=None))


@scenario(ALTER)
def test_refuses_wrong_quotas(ask: Conversation) -> None:
    user = {"user": ask.name("user")}
    for value in (0.0, -1.0, 0.5, 1e19):
        ask(alter(user, producer_byte_rate=value))
    for value in (0.0, -1.0):
        ask(alter(user, request_percentage=value))
    ask(alter({"ip": "127.1.2.4"}, connection_creation_rate=2.0**31))
    ask(alter({"ip": "127.1.2.4"}, connection_creation_rate=1.5))
    ask(alter({"ip": "127.1.2.4"}, producer_byte_rate=1.0))
    ask(alter(user, connection_creation_rate=1.0))
    ask(alter(user, no_such_quota=1.0))


@scenario(ALTER)
def test_refuses_wrong_entities(ask: Conversation) -> None:
    name = ask.name("user")
    for entity in (
        {},
        {"user": ""},
        {"planet": "mars"},
        {"ip": "127.0.0.1", "user": name},
        {"ip": "no such host"},
        {"client_id": ""},
    ):
        ask(alter(entity, producer_byte_rate=1.0))


@scenario(DESCRIBE)
def test_describes_what_matches(ask: Conversation) -> None:
    user, client = ask.name("user"), ask.name("client")
    ask.quietly(alter({"user": user}, producer_byte_rate=1), 1)
    ask.quietly(alter({"user": user, "client_id": client}, consumer_byte_rate=2), 1)
    ask.quietly(alter({"client_id": client}, request_percentage=3), 1)
    ask.quietly(alter({"user": user, "client_id": None}, request_percentage=4), 1)
    ask.settle(lambda found: len(found.entries) == 3, describe(("user", EXACT, user)))
    for strict in (False, True):
        for components in (
            [("user", EXACT, user), ("client-id", EXACT, client)],
            [("client-id", EXACT, client)],
            [("user", EXACT, user), ("client-id", DEFAULT, None)],
            [("user", EXACT, ask.name("nobody"))],
        ):
            request = describe(*components, strict=strict)
            if components != [("client-id", EXACT, client)] or strict:
                ask(request)
    ask(describe(("user", EXACT, user), strict=True))


@scenario(DESCRIBE)
def test_refuses_wrong_filters(ask: Conversation) -> None:
    ask(describe(("", EXACT, "x")))
    ask(describe(("user", EXACT, "x"), ("user", EXACT, "y")))
    ask(describe(("planet", EXACT, "x")))
    ask(describe(("user", 3, None)))
    ask(describe(("user", EXACT, None)))
    ask(describe(("user", DEFAULT, "x")))
    ask(describe(("user", ANY, "x")))
    ask(describe(("ip", ANY, None), ("user", ANY, None)))


@scenario(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def test_describes_credentials_that_do_not_exist(ask: Conversation) -> None:
    user = m.DescribeUserScramCredentialsRequest.UserName
    ask.quietly(alter({"user": ask.name("with-quota")}, producer_byte_rate=1), 1)
    for names in (None, [], [ask.name("nobody")], [""], [ask.name("with-quota")], ["twice", "twice", "once"]):
        users = None if names is None else [user(name=each) for each in names]
        ask(m.DescribeUserScramCredentialsRequest(users=users))
