"""Apache Kafka's command line tools print of headrace what they print of Apache Kafka, command by command.

Groups with members have tests of their own: `test_consumer_group_tools`, `test_group_tools`, `test_share_tools`,
`test_kafka_streams`. Commands for KRaft are in `test_admin_clients`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.asker import Asker
from tests.broker.admin_requests import broker_id
from tests.harness import HeadraceServer, unused
from tests.peers import kafka
from tests.peers.kafka_tools import Tools, kafka_tools

TOOLS = "org.apache.kafka.tools."
LEADERS, REASSIGN = TOOLS + "LeaderElectionCommand", TOOLS + "reassign.ReassignPartitionsCommand"
TOPICS, OFFSETS, LOG_DIRS = TOOLS + "TopicCommand", TOOLS + "GetOffsetShell", TOOLS + "LogDirsCommand"
CLUSTER, FEATURES, TRANSACTIONS = TOOLS + "ClusterTool", TOOLS + "FeatureCommand", TOOLS + "TransactionsCommand"
GROUPS, SHARE = TOOLS + "GroupsCommand", TOOLS + "consumer.group.ShareGroupCommand"
CONSUMER, STREAMS = TOOLS + "consumer.group.ConsumerGroupCommand", TOOLS + "streams.StreamsGroupCommand"
METRICS, CONFIGS, RECORDS = TOOLS + "ClientMetricsCommand", "kafka.admin.ConfigCommand", TOOLS + "DeleteRecordsCommand"

Command = Sequence[str]
"""A tool, and words after `--bootstrap-server`; @TOPIC, @GROUP, @BROKER, @PLAN stand for what each run has
of its own."""


def lines(text: str) -> list[Command]:
    """Commands, one a line; the words of a name with spaces are joined by ~."""
    return [[word.replace("~", " ") for word in line.split()] for line in text.strip().splitlines()]


PARTITIONS = [
    *([TOPICS, *words] for words in lines("""
        --describe --topic @TOPIC --unavailable-partitions
        --describe --topic @TOPIC --under-replicated-partitions
        --describe --topic no-such-topic
        --create --topic @TOPIC --partitions 2
        --create --topic @TOPIC --if-not-exists
        --create --topic not~legal
        --alter --topic @TOPIC --partitions 1
        --delete --topic no-such-topic
    """)),
    *([OFFSETS, "--topic", "@TOPIC", *words] for words in lines("""
        --time -1
        --time -2
        --time -3
        --time -4
        --time -5
        --time earliest-pending-upload
        --time 1700000000000
        --partitions 0
    """)),
    [OFFSETS, "--topic-partitions", "@TOPIC:0,no-such-topic:1"],
    *([LOG_DIRS, "--describe", *words] for words in lines("""
        --topic-list @TOPIC
        --broker-list @BROKER --topic-list @TOPIC
        --broker-list 4711
    """)),
    *([LEADERS, "--election-type", *words] for words in lines("""
        preferred --all-topic-partitions
        preferred --topic @TOPIC --partition 0
        unclean --topic @TOPIC --partition 0
    """)),
    *([REASSIGN, *words] for words in lines("""
        --generate --topics-to-move-json-file @TOPICS --broker-list @BROKER
        --execute --reassignment-json-file @PLAN
        --execute --throttle 1000 --replica-alter-log-dirs-throttle 3000 --additional --reassignment-json-file @PLAN
        --verify --reassignment-json-file @PLAN
        --cancel --reassignment-json-file @PLAN
        --execute --reassignment-json-file @WRONG
        --list
    """)),
    [RECORDS, "--offset-json-file", "@RECORDS"],
]  # fmt: skip

ADMINISTRATION = [
    *([CLUSTER, *words] for words in lines("""
        unregister --id 4711
        list-endpoints
        list-endpoints --include-fenced-brokers
    """)),
    *([FEATURES, *words] for words in lines("""
        upgrade --feature transaction.version=2
        upgrade --dry-run --feature group.version=1
        version-mapping
        feature-dependencies --feature group.version=1
    """)),
    *([TRANSACTIONS, *words] for words in lines("""
        list --transactional-id-pattern no-such.*
        describe --transactional-id no-such-id
        describe-producers --topic @TOPIC --partition 0
        find-hanging --broker-id @BROKER
        find-hanging --topic @TOPIC
        abort --topic @TOPIC --partition 0 --start-offset 0
        forceTerminateTransaction --transactional-id no-such-id
    """)),
    *([METRICS, *words] for words in lines("""
        --describe --name @GROUP
        --alter --name @GROUP --interval 10000 --metrics org.apache --match client_software_name=x.*
        --alter --name @GROUP --interval 5
        --alter --name @GROUP --match nothing=x
        --describe --name @GROUP
        --delete --name @GROUP
        --describe --name @GROUP
    """)),
]  # fmt: skip

CONFIGURATION = [
    *([CONFIGS, *words] for words in lines("""
        --describe --entity-type topics --entity-name no-such-topic
        --alter --entity-type topics --entity-name @TOPIC --add-config retention.ms=777,cleanup.policy=[compact,delete]
        --alter --entity-type topics --entity-name @TOPIC --delete-config retention.ms,nothing
        --alter --entity-type topics --entity-name no-such-topic --add-config retention.ms=7
        --describe --entity-type brokers --entity-name 4711
        --alter --entity-type brokers --entity-name @BROKER --add-config log.retention.ms=777777,num.io.threads=9
        --alter --entity-type brokers --entity-name @BROKER --delete-config log.retention.ms,num.io.threads
        --alter --entity-type brokers --entity-name @BROKER --add-config listener.name.plaintext.max.connections=100
        --alter --entity-type brokers --entity-name @BROKER --delete-config listener.name.plaintext.max.connections
        --alter --entity-type brokers --entity-default --add-config listener.name.plaintext.max.connections=100
        --alter --entity-type brokers --entity-default --delete-config listener.name.plaintext.max.connections
        --alter --entity-type broker-loggers --entity-name @BROKER --add-config nothing=DEBUG
        --alter --entity-type broker-loggers --entity-name @BROKER --add-config root=VERBOSE
        --alter --entity-type broker-loggers --entity-name @BROKER --delete-config root
        --alter --entity-type users --entity-name @GROUP --add-config producer_byte_rate=1000,request_percentage=50.5
        --alter --entity-type users --entity-name @GROUP --entity-type clients --entity-name c --add-config @QUOTA
        --alter --entity-type users --entity-name @GROUP --entity-type clients --entity-default --add-config @QUOTA
        --alter --entity-type users --entity-name @GROUP --add-config connection_creation_rate=10
        --alter --entity-type users --entity-name @GROUP --add-config producer_byte_rate=-1
        --alter --entity-type users --entity-name @GROUP --add-config producer_byte_rate=0.5
        --describe --entity-type users --entity-name @GROUP
        --describe --entity-type users --entity-name @GROUP --entity-type clients
        --alter --entity-type users --entity-name @GROUP --delete-config producer_byte_rate
        --alter --entity-type users --entity-name @GROUP --delete-config SCRAM-SHA-256
        --alter --entity-type ips --entity-name 127.9.9.9 --add-config connection_creation_rate=10
        --alter --entity-type ips --entity-name no~such --add-config connection_creation_rate=10
        --alter --entity-type ips --entity-name 127.9.9.9 --add-config producer_byte_rate=10
        --describe --entity-type ips --entity-name 127.9.9.9
        --alter --entity-type ips --entity-name 127.9.9.9 --delete-config connection_creation_rate
        --alter --entity-type groups --entity-name @GROUP --add-config consumer.session.timeout.ms=46000
        --alter --entity-type groups --entity-name @GROUP --add-config consumer.session.timeout.ms=1
        --alter --entity-type groups --entity-name @GROUP --add-config nothing=1
        --describe --entity-type groups --entity-name @GROUP
        --alter --entity-type groups --entity-name @GROUP --delete-config consumer.session.timeout.ms
        --alter --entity-type client-metrics --entity-name @GROUP --add-config interval.ms=6000,match=[client_id=a.*]
        --alter --entity-type client-metrics --entity-name @GROUP --add-config interval.ms=1
        --describe --entity-type client-metrics --entity-name @GROUP
        --alter --entity-type client-metrics --entity-name @GROUP --delete-config interval.ms,match
    """)),
]  # fmt: skip

EMPTY_GROUPS = [
    *([SHARE, *words] for words in lines("""
        --describe --group @GROUP
        --delete --group @GROUP
        --delete-offsets --group @GROUP --topic @TOPIC
        --reset-offsets --group @GROUP --topic @TOPIC:0 --to-latest --dry-run
        --reset-offsets --group @GROUP --topic @TOPIC --to-earliest --execute
        --reset-offsets --group @GROUP --topic @TOPIC --to-datetime 2020-01-01T00:00:00.000 --execute
        --reset-offsets --group @GROUP --topic no-such-topic --to-earliest --execute
        --reset-offsets --group @GROUP --all-topics --to-latest --execute
        --describe --group @GROUP
        --describe --group @GROUP --state
        --describe --group @GROUP --members --verbose
        --delete-offsets --group @GROUP --topic no-such-topic
        --delete-offsets --group @GROUP --topic @TOPIC
        --describe --group @GROUP
        --delete --group @GROUP
    """)),
    *([STREAMS, *words] for words in lines("""
        --describe --group @GROUP
        --delete --group @GROUP
        --reset-offsets --group @GROUP --input-topic @TOPIC --to-earliest --execute
        --delete-offsets --group @GROUP --input-topic @TOPIC
    """)),
    *([GROUPS, "--list", *words] for words in (["--group-type", "nothing"], ["--protocol", "no-such-protocol"])),
    *([CONSUMER, *words] for words in lines("""
        --describe --group @GROUP
        --delete-offsets --group @GROUP --topic @TOPIC
        --reset-offsets --group @GROUP --topic @TOPIC --to-latest
        --reset-offsets --group @GROUP --topic @TOPIC --to-latest --execute
        --describe --group @GROUP
        --describe --group @GROUP --state
    """)),
    [STREAMS, "--reset-offsets", "--group", "@GROUP", "--input-topic", "@TOPIC", "--to-latest", "--execute"],
    [STREAMS, "--describe", "--group", "@GROUP"],
    [CONSUMER, "--delete", "--group", "@GROUP"],
]  # fmt: skip

KINDS = {
    "partitions": PARTITIONS,
    "administration": ADMINISTRATION,
    "configuration": CONFIGURATION,
    "empty groups": EMPTY_GROUPS,
}


def said(tools: Tools, bootstrap: str, commands: Sequence[Command], directory: Path) -> Iterator[tuple[str, list[str]]]:
    """Each command, and the words of each line that it prints, sorted, for Apache Kafka prints hash maps as they come;
    what differs from run to run taken out."""
    with Asker(bootstrap) as asker:
        broker = str(broker_id(asker))
    topic, group = unused("tools"), unused("group")
    names = {"@TOPIC": topic, "@GROUP": group, "@BROKER": broker, "@QUOTA": "consumer_byte_rate=9"}
    for name, content in files(topic, int(broker)).items():
        path = directory / f"{topic}-{name[1:]}.json"
        path.write_text(json.dumps({**content, "version": 1}))
        names[name] = str(path)
    connection = ("--bootstrap-server", bootstrap)
    tools.check(TOPICS, *connection, "--create", "--topic", topic, "--partitions", "2")
    for tool, *words in commands:
        for placeholder, name in names.items():
            words = [word.replace(placeholder, name) for word in words]
        before = (words[0],) if tool in (CLUSTER,) else ()
        status, printed = tools.status(tool, *before, *connection, *words[len(before) :])
        for name in (names["@TOPICS"], names["@PLAN"], names["@WRONG"], names["@RECORDS"], topic, group, bootstrap):
            printed = printed.replace(name, "NAME")
        printed = printed.replace(bootstrap.rpartition(":")[2], "PORT")
        printed = re.sub(r'"(?:logDir|log_dirs)":\[?"[^"]*"\]?', "DIRECTORY", printed)
        printed = re.sub(r"\(\d+\)", "(ID)", printed)
        each = (
            " ".join(sorted(re.split(r"[\s,{}\[\]]+", line))).strip()
            for line in printed.splitlines()
            if "\tat " not in line
        )
        yield (
            f"{tool} {words}".replace(topic, "TOPIC").replace(group, "GROUP").replace(str(directory), ""),
            [
                f"exit {status}",
                *sorted(filter(None, each)),
            ],
        )


def files(topic: str, broker: int) -> dict[str, dict[str, object]]:
    """The files that commands read, by their placeholder."""
    plan = {"topic": topic, "partition": 0, "replicas": [broker], "log_dirs": ["any"]}
    return {
        "@TOPICS": {"topics": [{"topic": topic}]},
        "@PLAN": {"partitions": [plan]},
        "@WRONG": {"partitions": [{**plan, "replicas": [4711]}]},
        "@RECORDS": {"partitions": [{"topic": topic, "partition": number, "offset": 0} for number in (0, 1)]},
    }


@pytest.fixture(scope="module")
def both(apache_kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tools, str, str]]:
    """A JVM for the tools, and the addresses of headrace and of Apache Kafka."""
    directory = tmp_path_factory.mktemp("tools")
    server = HeadraceServer(directory / "data", {**kafka.SHARED_SETTINGS, "broker.id": "1"}).start()
    try:
        with kafka_tools(directory) as tools:
            yield tools, server.bootstrap, apache_kafka
    finally:
        server.stop()


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kafkas_tools_print_the_same(both: tuple[Tools, str, str], tmp_path: Path, kind: str) -> None:
    tools, *addresses = both
    ours, theirs = (list(said(tools, each, KINDS[kind], tmp_path)) for each in addresses)
    differing = [(mine, expected) for mine, expected in zip(ours, theirs, strict=True) if mine[1] != expected[1]]
    assert [mine for mine, _ in differing] == [expected for _, expected in differing]
