"""What each field of the APIs that instances are served names.

A field is given by its path in the schema. The names in `EVERYWHERE` mean the same in every API; the other fields are
listed for each API. A test walks all schemas: a string, uuid or bytes field without a kind fails it, and so does a path
that no schema has.

    Kind          in a request                                 in a response
    NEUTRAL       unchanged                                    unchanged
    TOPIC         orders -> acme.orders, if not empty          acme.orders -> orders; another's: its element is left out
    GROUP         as TOPIC                                     as TOPIC
    ANY_GROUP     also the empty id, where Kafka allows it     as TOPIC
    TRANSACTION   as TOPIC                                     as TOPIC
    USER          as TOPIC                                     as TOPIC
    TOPIC_ID      another's, or nobody's: an id that does      back again
                  not exist, by a secret that none can guess
    TEXT          unchanged                                    without the instance's prefix
    SUBSCRIPTION  topics in the bytes of a consumer            back again
    ASSIGNMENT    topics in the bytes of a consumer            back again
    TOPIC_REGEX   (names) -> acme\\.(?:names)                   back again
    TRANSACTION_REGEX  as TOPIC_REGEX
    RESOURCE      a topic or a group by the element's type     as TOPIC; of other types as it is
    LISTED_RESOURCE                                            as RESOURCE; other types than brokers are left out
    ENTITY        a user or client id by the element's type    back again
    LISTED_ENTITY                                              as ENTITY; the element of another's is left out
    PATH                                                       a name that tells nothing
    SIZE                                                       -1: it is the sum over all instances
    OF_SERVICE    names that the instance's services translate (`acls`)
"""

from collections.abc import Iterator, Mapping
from enum import Enum, auto

from headrace.protocol.apis import ApiKey
from headrace.protocol.codec import schema


class FieldKind(Enum):
    """What a field names."""

    NEUTRAL = auto()
    TOPIC = auto()
    GROUP = auto()
    ANY_GROUP = auto()
    TRANSACTION = auto()
    USER = auto()
    TOPIC_ID = auto()
    TEXT = auto()
    SUBSCRIPTION = auto()
    ASSIGNMENT = auto()
    TOPIC_REGEX = auto()
    TRANSACTION_REGEX = auto()
    RESOURCE = auto()
    LISTED_RESOURCE = auto()
    ENTITY = auto()
    LISTED_ENTITY = auto()
    PATH = auto()
    SIZE = auto()
    OF_SERVICE = auto()


_K = FieldKind
TEXT_TYPES = ("string", "bytes", "uuid", "records")
"""The types of fields that must have a kind."""

EVERYWHERE: Mapping[str, FieldKind] = {
    "error_message": _K.TEXT,
    "batch_index_error_message": _K.TEXT,
    "acknowledge_error_message": _K.TEXT,
    "status_detail": _K.TEXT,
    "group_id": _K.GROUP,
    "group_ids": _K.GROUP,
    "transactional_id": _K.TRANSACTION,
    "transactional_ids": _K.TRANSACTION,
    "topic_id": _K.TOPIC_ID,
    "topic": _K.TOPIC,
    "topic_name": _K.TOPIC,
    "topic_names": _K.TOPIC,
    "subscribed_topic_names": _K.TOPIC,
    "subscribed_topic_regex": _K.TOPIC_REGEX,
    "total_bytes": _K.SIZE,
    "usable_bytes": _K.SIZE,
    **dict.fromkeys(
        (
            "assignor_name", "client_host", "client_id", "cluster_id", "committed_metadata",
            "configuration_keys", "documentation", "group_instance_id", "group_state", "group_type", "host",
            "instance_id", "leader", "mechanism", "mechanisms", "member_id", "metadata", "process_id",
            "protocol_data", "protocol_name", "protocol_type", "rack", "rack_id", "reason", "records",
            "server_assignor", "subtopology_id", "value",
        ),
        _K.NEUTRAL,
    ),
}  # fmt: skip
"""Kinds by a field's own name. `leader` is a member's id, and `cluster_id` that which the services tell."""


class Fields:
    """The kinds of an API's fields, by their paths, where the name alone does not tell."""

    __slots__ = ("request", "response")

    def __init__(
        self, request: Mapping[str, FieldKind] | None = None, response: Mapping[str, FieldKind] | None = None
    ) -> None:
        self.request, self.response = request or {}, response or {}


_CONFIGS = Fields(
    {"resources.resource_name": _K.RESOURCE, "resources.configs.name": _K.NEUTRAL},
    {"responses.resource_name": _K.RESOURCE},
)
_ACLS = dict.fromkeys(("principal_filter", "host_filter", "resource_name_filter"), _K.OF_SERVICE)
_ACL = dict.fromkeys(("resource_name", "principal", "host"), _K.OF_SERVICE)
_TOPOLOGY = {
    "topology.subtopologies.source_topics": _K.TOPIC,
    "topology.subtopologies.repartition_sink_topics": _K.TOPIC,
    **{
        f"topology.subtopologies.{topics}{field}": kind
        for topics in ("state_changelog_topics", "repartition_source_topics")
        for field, kind in ((".name", _K.TOPIC), (".topic_configs.key", _K.NEUTRAL))
    },
}


def _within(path: str, fields: Mapping[str, FieldKind]) -> dict[str, FieldKind]:
    return {f"{path}.{name}": kind for name, kind in fields.items()}


SERVED: Mapping[ApiKey, Fields] = {
    ApiKey.PRODUCE: Fields({"topic_data.name": _K.TOPIC}, {"responses.name": _K.TOPIC}),
    ApiKey.FETCH: Fields({"topics.partitions.replica_directory_id": _K.NEUTRAL}),
    ApiKey.LIST_OFFSETS: Fields({"topics.name": _K.TOPIC}, {"topics.name": _K.TOPIC}),
    ApiKey.METADATA: Fields({"topics.name": _K.TOPIC}, {"topics.name": _K.TOPIC}),
    ApiKey.OFFSET_COMMIT: Fields({"group_id": _K.ANY_GROUP, "topics.name": _K.TOPIC}, {"topics.name": _K.TOPIC}),
    ApiKey.OFFSET_FETCH: Fields(
        {
            "group_id": _K.ANY_GROUP,
            "groups.group_id": _K.ANY_GROUP,
            "topics.name": _K.TOPIC,
            "groups.topics.name": _K.TOPIC,
        },
        {"topics.name": _K.TOPIC, "groups.topics.name": _K.TOPIC},
    ),
    ApiKey.FIND_COORDINATOR: Fields(
        {"key": _K.ANY_GROUP, "coordinator_keys": _K.ANY_GROUP}, {"coordinators.key": _K.GROUP}
    ),
    ApiKey.JOIN_GROUP: Fields(
        {"protocols.name": _K.NEUTRAL, "protocols.metadata": _K.SUBSCRIPTION}, {"members.metadata": _K.SUBSCRIPTION}
    ),
    ApiKey.HEARTBEAT: Fields(),
    ApiKey.LEAVE_GROUP: Fields(),
    ApiKey.SYNC_GROUP: Fields({"assignments.assignment": _K.ASSIGNMENT}, {"assignment": _K.ASSIGNMENT}),
    ApiKey.DESCRIBE_GROUPS: Fields(
        {"groups": _K.ANY_GROUP},
        {
            "groups.members.member_metadata": _K.SUBSCRIPTION,
            "groups.members.member_assignment": _K.ASSIGNMENT,
        },
    ),
    ApiKey.LIST_GROUPS: Fields({"states_filter": _K.NEUTRAL, "types_filter": _K.NEUTRAL}),
    ApiKey.SASL_HANDSHAKE: Fields(),
    ApiKey.API_VERSIONS: Fields(
        {"client_software_name": _K.NEUTRAL, "client_software_version": _K.NEUTRAL},
        {"supported_features.name": _K.NEUTRAL, "finalized_features.name": _K.NEUTRAL},
    ),
    ApiKey.CREATE_TOPICS: Fields(
        {"topics.name": _K.TOPIC, "topics.configs.name": _K.NEUTRAL},
        {"topics.name": _K.TOPIC, "topics.configs.name": _K.NEUTRAL},
    ),
    ApiKey.DELETE_TOPICS: Fields({"topics.name": _K.TOPIC}, {"responses.name": _K.TOPIC}),
    ApiKey.DELETE_RECORDS: Fields({"topics.name": _K.TOPIC}, {"topics.name": _K.TOPIC}),
    ApiKey.INIT_PRODUCER_ID: Fields(),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Fields(),
    ApiKey.ADD_PARTITIONS_TO_TXN: Fields(
        {
            "v3_and_below_transactional_id": _K.TRANSACTION,
            "v3_and_below_topics.name": _K.TOPIC,
            "transactions.topics.name": _K.TOPIC,
        },
        {
            "results_by_topic_v3_and_below.name": _K.TOPIC,
            "results_by_transaction.topic_results.name": _K.TOPIC,
        },
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Fields(),
    ApiKey.END_TXN: Fields(),
    ApiKey.TXN_OFFSET_COMMIT: Fields({"topics.name": _K.TOPIC}, {"topics.name": _K.TOPIC}),
    ApiKey.DESCRIBE_ACLS: Fields(
        _ACLS,
        {
            "resources.resource_name": _K.OF_SERVICE,
            "resources.acls.principal": _K.OF_SERVICE,
            "resources.acls.host": _K.OF_SERVICE,
        },
    ),
    ApiKey.CREATE_ACLS: Fields(_within("creations", _ACL)),
    ApiKey.DELETE_ACLS: Fields(_within("filters", _ACLS), _within("filter_results.matching_acls", _ACL)),
    ApiKey.DESCRIBE_CONFIGS: Fields(
        {"resources.resource_name": _K.RESOURCE},
        {
            "results.resource_name": _K.RESOURCE,
            "results.configs.name": _K.NEUTRAL,
            "results.configs.synonyms.name": _K.NEUTRAL,
        },
    ),
    ApiKey.ALTER_CONFIGS: _CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS: Fields(
        response={"results.log_dir": _K.PATH, "results.topics.name": _K.TOPIC},
    ),
    ApiKey.SASL_AUTHENTICATE: Fields({"auth_bytes": _K.NEUTRAL}, {"auth_bytes": _K.NEUTRAL}),
    ApiKey.CREATE_PARTITIONS: Fields({"topics.name": _K.TOPIC}, {"results.name": _K.TOPIC}),
    ApiKey.DELETE_GROUPS: Fields({"groups_names": _K.ANY_GROUP}),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _CONFIGS,
    ApiKey.OFFSET_DELETE: Fields({"topics.name": _K.TOPIC}, {"topics.name": _K.TOPIC}),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Fields(
        {"components.entity_type": _K.NEUTRAL, "components.match": _K.ENTITY},
        {
            "entries.entity.entity_type": _K.NEUTRAL,
            "entries.entity.entity_name": _K.LISTED_ENTITY,
            "entries.values.key": _K.NEUTRAL,
        },
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Fields(
        {
            "entries.entity.entity_type": _K.NEUTRAL,
            "entries.entity.entity_name": _K.ENTITY,
            "entries.ops.key": _K.NEUTRAL,
        },
        {"entries.entity.entity_type": _K.NEUTRAL, "entries.entity.entity_name": _K.ENTITY},
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Fields({"users.name": _K.USER}, {"results.user": _K.USER}),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Fields(
        {
            "deletions.name": _K.USER,
            "upsertions.name": _K.USER,
            "upsertions.salt": _K.NEUTRAL,
            "upsertions.salted_password": _K.NEUTRAL,
        },
        {"results.user": _K.USER},
    ),
    ApiKey.DESCRIBE_CLUSTER: Fields(),
    ApiKey.DESCRIBE_PRODUCERS: Fields({"topics.name": _K.TOPIC}, {"topics.name": _K.TOPIC}),
    ApiKey.DESCRIBE_TRANSACTIONS: Fields(response={"transaction_states.transaction_state": _K.NEUTRAL}),
    ApiKey.LIST_TRANSACTIONS: Fields(
        {"state_filters": _K.NEUTRAL, "transactional_id_pattern": _K.TRANSACTION_REGEX},
        {"unknown_state_filters": _K.NEUTRAL, "transaction_states.transaction_state": _K.NEUTRAL},
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Fields(),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Fields(),
    ApiKey.LIST_CONFIG_RESOURCES: Fields(response={"config_resources.resource_name": _K.LISTED_RESOURCE}),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Fields({"topics.name": _K.TOPIC}, {"topics.name": _K.TOPIC}),
    ApiKey.SHARE_GROUP_HEARTBEAT: Fields(),
    ApiKey.SHARE_GROUP_DESCRIBE: Fields(),
    ApiKey.SHARE_FETCH: Fields(),
    ApiKey.SHARE_ACKNOWLEDGE: Fields(),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Fields(
        {
            **_TOPOLOGY,
            "topology.subtopologies.source_topic_regex": _K.TOPIC_REGEX,
            "client_tags.key": _K.NEUTRAL,
        },
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: Fields(
        response={
            **_within("groups", _TOPOLOGY),
            "groups.members.client_tags.key": _K.NEUTRAL,
        }
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Fields(),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Fields(),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Fields(),
}
"""The APIs that instances are served. The others are the operator's, or those of brokers."""


def kind_of(paths: Mapping[str, FieldKind], path: str) -> FieldKind | None:
    """The kind of a field, by its path; None for one that has none."""
    return paths.get(path) or EVERYWHERE.get(path.rpartition(".")[2])


def leaves(message: schema.MessageSchema) -> Iterator[tuple[str, schema.Field]]:
    """The path of every field that is no struct, in the order of the schema."""

    def walk(struct: str, path: str) -> Iterator[tuple[str, schema.Field]]:
        for field in message.structs[struct]:
            if field.is_struct:
                yield from walk(field.type, f"{path}{field.name}.")
            else:
                yield f"{path}{field.name}", field

    return walk("", "")
