"""What metadata records add up to, and the tree that it becomes."""

from pathlib import Path

import pytest

from headrace.metadata import znodes
from headrace.metadata.acl_nodes import decode_entries
from headrace.metadata.model import Replicas
from headrace.migrate.metadata_image import MetadataImage, tree_of
from headrace.migrate.metadata_log import MetadataLog, MetadataRecord
from headrace.migrate.nodes import ClusterNodes, Nodes, understood
from headrace.migrate.refusal import MigrationRefused
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.security.access import Operation
from headrace.security.acls.model import Entry, Permission
from headrace.types import BrokerId, TopicPartition
from tests.migrate.quorum import KINDS, OTHER_ID, TOPIC_ID, change, partition, setting, topic

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
FLIGHTS = TopicPartition("flights", 0)


def image_of(*messages: Message) -> MetadataImage:
    records = [
        MetadataRecord(KINDS[type(each).__name__], each.VERSIONS[-1], memoryview(each.encode(each.VERSIONS[-1])))
        for each in messages
    ]
    return MetadataImage().apply(records)


def nodes_of(*messages: Message) -> Nodes:
    return tree_of(image_of(*messages), MetadataLog([], 7, 0, 0, None), CLUSTER, 1)


def cluster_of(*messages: Message) -> ClusterNodes:
    return understood(nodes_of(*messages))


def replicas(*each: tuple[int, ...]) -> Replicas:
    return Replicas(*(tuple(BrokerId(broker) for broker in brokers) for brokers in each))


def test_a_topic_keeps_its_id_its_settings_and_its_leadership() -> None:
    found = cluster_of(topic(), partition(leader_epoch=4), partition(1), setting("retention.ms", "5"))
    assert found.cluster_id == CLUSTER
    assert found.topics["flights"].id == TOPIC_ID
    assert found.topics["flights"].partitions == {0: replicas((1,)), 1: replicas((1,))}
    assert found.topic_settings == {"flights": {"retention.ms": "5"}}
    state = found.leadership[FLIGHTS]
    assert (state.leader, state.leader_epoch, state.isr, state.controller_epoch) == (1, 4, (1,), 7)


def test_each_change_of_leader_is_an_epoch_and_other_changes_are_not() -> None:
    found = cluster_of(topic(), partition(), change(leader=-1), change(leader=1), change(isr=[1]))
    assert (found.leadership[FLIGHTS].leader, found.leadership[FLIGHTS].leader_epoch) == (1, 2)


@pytest.mark.parametrize("eligible", [[1], []])
def test_the_only_replica_is_in_sync_though_the_isr_is_empty(eligible: list[int]) -> None:
    found = cluster_of(topic(), partition(), change(isr=[], leader=-1, eligible_leader_replicas=eligible))
    assert (found.leadership[FLIGHTS].leader, found.leadership[FLIGHTS].isr) == (-1, (1,))


def test_replicas_on_their_way_and_an_unclean_election_are_kept() -> None:
    moved = change(replicas=[1, 2], adding_replicas=[2], removing_replicas=[1], leader_recovery_state=1)
    found = cluster_of(topic(), partition(), moved)
    assert found.topics["flights"].partitions[0] == replicas((1, 2), (2,), (1,))
    assert found.leadership[FLIGHTS].is_recovering


def test_a_topic_that_was_deleted_and_made_again_is_the_new_one() -> None:
    again = [topic(topic_id=OTHER_ID), partition(topic_id=OTHER_ID)]
    gone = m.RemoveTopicRecord(topic_id=TOPIC_ID)
    found = cluster_of(topic(), partition(), partition(1), setting("a", "b"), gone, *again)
    assert found.topics["flights"].id == OTHER_ID
    assert list(found.topics["flights"].partitions) == [0]
    assert found.topic_settings == {"flights": {}}


def test_settings_are_set_changed_and_taken_back_for_topics_and_brokers() -> None:
    found = cluster_of(
        topic(), setting("a", "1"), setting("b", "2"), setting("a", "3"), setting("b", None),
        setting("c", "4", kind=4, owner="1"), setting("d", "5", kind=4, owner=""),
        setting("e", "6", kind=32, owner="g"),
    )  # fmt: skip
    assert found.topic_settings == {"flights": {"a": "3"}}
    assert found.broker_settings == {"1": {"c": "4"}, "<default>": {"d": "5"}}


def test_producer_ids_go_on_behind_the_last_block() -> None:
    block = znodes.decode_producer_ids(nodes_of(m.ProducerIdsRecord(next_producer_id=5000))[znodes.PRODUCER_ID_BLOCK])
    assert (block.first, block.last) == (4000, 4999)
    assert znodes.PRODUCER_ID_BLOCK not in nodes_of()


def entry(name: str, *, id: bytes = TOPIC_ID, **fields: int) -> m.AccessControlEntryRecord:
    """A rule that permits alice to read a topic."""
    codes = {"resource_type": 2, "pattern_type": 3, "operation": 3, "permission_type": 3} | fields
    return m.AccessControlEntryRecord(id=id, resource_name=name, principal="User:alice", host="*", **codes)


def test_access_control_lists_are_those_that_were_not_removed() -> None:
    gone = m.RemoveAccessControlEntryRecord(id=OTHER_ID)
    literal, prefixed = entry("flights"), entry("fl", id=b"3" * 16, pattern_type=4, permission_type=2)
    nodes = nodes_of(literal, prefixed, entry("flights", id=OTHER_ID, operation=4), gone)
    found = {path: decode_entries(nodes[path]) for path in nodes if path.startswith("/kafka-acl")}
    assert found == {
        "/kafka-acl/Topic/flights": (Entry("User:alice", "*", Operation.READ, Permission.ALLOW),),
        "/kafka-acl-extended/prefixed/Topic/fl": (Entry("User:alice", "*", Operation.READ, Permission.DENY),),
    }


@pytest.mark.parametrize("fields", [{"resource_type": 99}, {"operation": 99}, {"pattern_type": 2}])
def test_a_rule_that_is_not_understood_is_refused_since_it_could_deny(fields: dict[str, int]) -> None:
    with pytest.raises(MigrationRefused, match="access control entry of User:alice on 'flights'"):
        nodes_of(entry("flights", id=TOPIC_ID, **fields))


def test_a_rule_whose_name_no_node_can_have_is_counted() -> None:
    assert image_of(entry("a/b", resource_type=3)).left_behind() == ["ACLs whose name has a / (1 entry)"]


def test_a_rule_that_denies_is_kept_or_ends_the_migration() -> None:
    """Another rule, of a prefix, may allow what it denies (CVE-2024-27309)."""
    with pytest.raises(MigrationRefused, match="denies User:alice Read on Group 'a/b' cannot be kept"):
        nodes_of(
            entry("a", resource_type=3, pattern_type=4), entry("a/b", id=OTHER_ID, resource_type=3, permission_type=2)
        )


def test_what_is_not_kept_is_counted() -> None:
    of_all = m.ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)
    image = image_of(
        m.UserScramCredentialRecord(name="u", mechanism=1, salt=b"s"), m.DelegationTokenRecord(token_id="t"),
        m.ClientQuotaRecord(entity=[of_all], key="producer_byte_rate", value=5.0),
        m.FeatureLevelRecord(name="metadata.version", feature_level=25), setting("a", "b", kind=16, owner="m"),
    )  # fmt: skip
    assert image.left_behind() == [
        "SCRAM credentials (1 credential)",
        "quotas (1 quota)",
        "delegation tokens (1 token)",
        "settings of groups and of client metrics (1 setting)",
        "finalized features (metadata.version=25)",
    ]


def test_records_of_kafkas_that_change_nothing_here_are_passed_over(tmp_path: Path) -> None:
    image = image_of(m.NoOpRecord(), m.RegisterBrokerRecord(broker_id=1), m.UnregisterBrokerRecord(broker_id=1))
    assert image == MetadataImage()
    assert image_of(m.ZkMigrationStateRecord(zk_migration_state=2)).is_migrating_zookeeper
