"""Where lake tables are defined: in the setting `headrace.lake` of their topics, through a broker's admin requests.

So a definition is in the metadata tree with the topic's other settings, whichever store holds the tree; the right to
alter the topic's settings is the right to define its table; and it goes with the topic. The table stays.
"""

from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import RESOURCE_TOPIC, Admin
from headrace.config.lake_definition import LakeDefinition, decode_definition
from headrace.errors import InvalidConfig

SETTING = "headrace.lake"


class Definitions:
    """The lake tables of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._admin = Admin(cluster)

    def of(self, topic: str) -> LakeDefinition | None:
        """The table of a topic; None if it has none. Raises UnknownTopicOrPartition, and InvalidConfig for a broker
        that does not know such tables."""
        found = {entry.name: entry.value for entry in self._admin.describe_configs(RESOURCE_TOPIC, topic)}
        if SETTING not in found:
            raise InvalidConfig("this cluster keeps no definitions of lake tables: it is not headrace, or an older one")
        try:
            return decode_definition(found[SETTING] or "") if found[SETTING] else None
        except ValueError as wrong:
            raise InvalidConfig(f"the setting {SETTING} of topic {topic} cannot be used: {wrong}") from None

    def all(self) -> dict[str, LakeDefinition]:
        """The tables of all topics that have one, by topic."""
        found = {topic.name: self.of(topic.name) for topic in self._admin.list_topics()}
        return {topic: one for topic, one in sorted(found.items()) if one is not None}

    def put(self, topic: str, definition: LakeDefinition, *, validate_only: bool = False) -> None:
        """Define the table of a topic. Raises KafkaError."""
        self._admin.alter_configs(RESOURCE_TOPIC, topic, {SETTING: definition.encoded()}, validate_only=validate_only)

    def remove(self, topic: str, *, validate_only: bool = False) -> None:
        """Forget the table of a topic. The table itself stays. Raises KafkaError."""
        self._admin.alter_configs(RESOURCE_TOPIC, topic, {SETTING: None}, validate_only=validate_only)
