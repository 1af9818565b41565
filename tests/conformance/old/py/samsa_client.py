"""samsa 0.3.11, a client of Kafka 0.7 that finds brokers in ZooKeeper, behind lines of JSON. Python 2.7 runs it.

{"do": "partitions", "zookeeper": "127.0.0.1:1/old", "topic": "t"}                -> {"ok": ["1-0", "2-0"]}
{"do": "produce", "zookeeper": ..., "topic": "t", "partition": "1-0", "values": ["a"]}     -> {"ok": null}
{"do": "join", "zookeeper": ..., "topic": "t", "group": "g"}                     -> {"ok": null}
{"do": "owned"}                                                                   -> {"ok": ["1-0"]}
{"do": "take"}           a value, or null if none has arrived                     -> {"ok": "a"}
{"do": "commit"}                                                                  -> {"ok": null}
"""

# mypy: ignore-errors

import json
import sys

from kazoo.client import KazooClient  # of an own release
from samsa.cluster import Cluster

state = {}


def cluster(ask):
    if "cluster" not in state:
        client = KazooClient(ask["zookeeper"], timeout=ask["session_s"])
        client.start(60)
        state["cluster"] = Cluster(client)
    return state["cluster"]


def name_of(partition):
    return "-".join([str(partition.broker.id), str(partition.number)])


def partitions(ask):
    return sorted(name_of(each) for each in cluster(ask).topics[ask["topic"].encode("ascii")].partitions)


def produce(ask):
    topic = cluster(ask).topics[ask["topic"].encode("ascii")]
    (found,) = [each for each in topic.partitions if name_of(each) == ask["partition"]]
    found.publish([value.encode("utf-8") for value in ask["values"]])


def join(ask):
    topic = cluster(ask).topics[ask["topic"].encode("ascii")]
    state["consumer"] = topic.subscribe(ask["group"].encode("ascii"), backoff_increment=0.05, rebalance_retries=8)


def owned(_):
    return sorted(name_of(each) for each in list(state["consumer"].partitions))


def take(_):
    found = state["consumer"].next_message(timeout=0.05)
    return None if found is None else found.decode("utf-8")


def commit(_):
    state["consumer"].commit_offsets()


COMMANDS = {
    "partitions": partitions, "produce": produce, "join": join, "owned": owned, "take": take, "commit": commit,
}  # fmt: skip

while True:
    line = sys.stdin.readline()
    if not line:
        break
    try:
        question = json.loads(line)
        answer = {"ok": COMMANDS[question["do"]](question)}
    except Exception as error:
        answer = {"error": ": ".join([type(error).__name__, str(error)]), "code": -1}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
