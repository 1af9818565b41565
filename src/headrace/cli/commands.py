"""The table of commands: the module of each and its one-line help. Listing commands imports none of their modules."""

from collections.abc import Mapping
from typing import NamedTuple


class Command(NamedTuple):
    """A command: `attribute` of `module` is its function, or the typer application of its own commands."""

    module: str
    attribute: str
    help: str


OWN_WAY = ("serve", "load")
"""Commands that parse their arguments themselves, without typer."""

COMMANDS: Mapping[str, Command] = {
    "serve": Command("headrace.broker.app", "main", "Run a broker until it is stopped."),
    "produce": Command("headrace.cli.produce", "produce", "Send records to a topic, one per line of input."),
    "consume": Command("headrace.cli.consume", "consume", "Print the records of a topic."),
    "load": Command(
        "headrace.spark.load.load_command", "main", "Load topics into a Delta table exactly once, with Spark."
    ),
    "lake": Command("headrace.cli.lake", "app", "Write topics to lake tables that any engine reads, without Spark."),
    "mirror": Command("headrace.cli.mirror", "mirror", "Copy topics of one cluster into another, each record once."),
    "topic": Command("headrace.cli.topic", "app", "Create, list, describe, alter, trim, move and delete topics."),
    "group": Command("headrace.cli.group", "app", "List, describe and delete groups, and reset their offsets."),
    "transaction": Command(
        "headrace.cli.transaction", "app", "List and describe transactions, and find and abort hanging ones."
    ),
    "user": Command("headrace.cli.user", "app", "Add, list and remove users with a SCRAM password."),
    "quota": Command("headrace.cli.quota", "app", "List, set and remove quotas of users, client ids and addresses."),
    "instance": Command(
        "headrace.cli.instance", "app", "Create, list, describe, alter and delete instances: tenants of the cluster."
    ),
    "acl": Command("headrace.cli.acl", "app", "List, add and remove access control lists: who may do what."),
    "cluster": Command(
        "headrace.cli.cluster", "app", "Show the state of a cluster, move leaders and replicas, and restart brokers."
    ),
    "config": Command(
        "headrace.cli.settings", "app", "Show and change the settings of topics, brokers, groups and more."
    ),
    "context": Command(
        "headrace.cli.context", "app", "List, show and choose contexts, which say how to reach a cluster."
    ),
    "certificates": Command(
        "headrace.cli.certificates", "app", "Make certificates for development: an authority, servers and clients."
    ),
    "settings": Command("headrace.cli.all_settings", "list_settings", "List the settings of brokers and topics."),
    "log": Command("headrace.cli.log", "app", "Inspect, verify and repair log files, and import them into topics."),
    "bench": Command("headrace.cli.bench", "app", "Run benchmarks on this machine."),
    "migrate": Command("headrace.cli.migrate", "app", "Copy a broker's data from Apache Kafka to headrace, or back."),
}


def usage() -> str:
    """What `headrace --help` prints."""
    width = max(map(len, COMMANDS))
    return "\n".join(
        [
            "Usage: headrace [--context NAME] COMMAND [ARGS]...",
            "",
            "  A Kafka-compatible streaming log whose pipelines run on Spark.",
            "",
            "Options:",
            "  -h, --help     Show this message and exit; after a command, show its own.",
            "  -V, --version  Show the version and exit.",
            "  --context NAME Take the address and the security options of a context; see headrace context.",
            "",
            "Commands:",
            *(f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()),
        ]
    )
