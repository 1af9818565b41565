"""The text of docs/rights.md: what each API demands of whom, from the DEMANDS of the handlers."""

from collections.abc import Iterator
from enum import IntEnum

from headrace.broker.handlers import all_modules
from headrace.broker.request.demands import Demand, RefusalEffect

INTRO = """\
With an authorizer (`authorizer.class.name`), each request needs rights on what it names. The table has what each API
asks for, and what a refusal does. The operations, the order in which they are asked for and the errors are those of
Apache Kafka 4.3.

- *the request*: nothing is done, and the answer is the error
- *the entry*: a topic, group or id of the request gets the error; the others are answered
- *left out*: the answer does not contain it, and tells no error
- what one may not see is answered alike whether it exists or not. By its id a topic is not hidden: an id cannot be
  guessed, and clients that know it are told that they may not use the topic

The rights READ, WRITE, DELETE and ALTER contain DESCRIBE; ALTER_CONFIGS contains DESCRIBE_CONFIGS. A denial comes
before every allowance. Authorized operations, in Metadata, DescribeCluster and the descriptions of topics and groups,
are those of the client that asks.

Requests of brokers (CLUSTER_ACTION) are also refused without an authorizer, to whoever is no broker of the cluster:
then the listener tells (`inter.broker.listener.name`).

Differences from Apache Kafka:

- ConsumerGroupDescribe and ShareGroupDescribe leave out names of topics that members subscribe to and the client may
  not see. Apache Kafka tells them.
- DeleteTopics answers TOPIC_AUTHORIZATION_FAILED to a client without DELETE on the topic, as Apache Kafka 3.9. Apache
  Kafka 4.3 says of a topic that the client may describe that it does not exist, and takes DELETE on the cluster for a
  right on every topic, denied or not.
- ListOffsets permits a follower with CLUSTER_ACTION what it permits a client with DESCRIBE, as OffsetForLeaderEpoch
  does. Apache Kafka's followers need DESCRIBE as well.
- CreateTopics of a name that collides with another topic's (`a.b` with `a_b`) names the other to a client that may
  describe it, and answers TOPIC_AUTHORIZATION_FAILED to others. Apache Kafka names it to everybody.
- The texts of refusals are those of Apache Kafka, but where it shows a Java object they are `Cluster authorization
  failed.` Refused entries are where Apache Kafka has them, if it has an order; those of a Fetch are in the request's.
- ElectLeaders has the error for each partition, and none for the whole request if it names partitions.
- AlterShareGroupOffsets, DeleteShareGroupOffsets and OffsetDelete do not ask for the group if all topics are refused.
- OffsetFetch before version 8 repeats the error of a forbidden group for each partition.
- A fetch that waits gets no records any more after a rule has taken the topic away, or from a follower the right to
  act as a broker. Apache Kafka asks when it comes.
"""


def rights_page(generated: str) -> str:
    """The page."""
    rows = [row for module in all_modules() for row in _rows(module.API_KEY.title, module.DEMANDS)]
    head = ["| API | operation | on | or else | a refusal concerns | with |", "|---|---|---|---|---|---|"]
    return "\n".join(["# What each request needs", "", generated, INTRO, *head, *rows, ""])


def _rows(api: str, demands: tuple[Demand, ...]) -> Iterator[str]:
    if not demands:
        yield f"| {api} | none | | | | |"
    for row in dict.fromkeys(row for each in demands for row in _row(each)):
        yield f"| {api} | {row} |"


def _row(demand: Demand) -> Iterator[str]:
    what = f"{demand.operation.name} | {_word(demand.resource)} | {_alternative(demand)}"
    error = f"`{demand.refused_with.name}`"
    if demand.asked is not None or demand.by_handler is RefusalEffect.REQUEST:
        yield f"{what} | the request | {error}"
    if demand.entries is not None or demand.by_handler is RefusalEffect.ENTRY:
        yield f"{what} | the entry | {error}"
    if demand.by_handler is RefusalEffect.HIDDEN:
        yield f"{what} | left out |"
    if demand.by_handler is RefusalEffect.ZERO:
        yield f"{what} | the operations of the cluster | 0"


def _alternative(demand: Demand) -> str:
    found = []
    if demand.or_on_cluster is not None:
        found.append(f"{demand.or_on_cluster.name} on the cluster")
    if demand.or_on_any is not None:
        operation, resource = demand.or_on_any
        found.append(f"{operation.name} on any {_word(resource)}")
    return ", ".join(found)


def _word(resource: IntEnum) -> str:
    return resource.name.lower().replace("_", " ")
