"""The hash of topics' metadata: values that Apache Kafka's own hash (hash4j's XXH3) gives."""

from headrace.coordinators.groups.modern.metadata_hash import metadata_hash
from headrace.coordinators.groups.modern.topics import ModernTopic

TOPIC = ModernTopic("topic-\u00e4", bytes.fromhex("01020304050607081112131415161718"), (("r1", "rack2"),) * 3)


def test_a_topic_has_kafkas_hash() -> None:
    assert TOPIC.hash == 1260699653038724438


def test_a_group_has_the_hash_of_its_topics_in_the_order_of_their_names() -> None:
    other = ModernTopic("a", bytes(16), ((), ()))
    assert metadata_hash([]) == 0
    assert metadata_hash([TOPIC, other]) == metadata_hash([other, TOPIC]) != metadata_hash([TOPIC])


def test_partitions_racks_and_ids_count() -> None:
    changed = [
        ModernTopic(TOPIC.name, TOPIC.topic_id, TOPIC.racks[:2]),
        ModernTopic(TOPIC.name, TOPIC.topic_id, (*TOPIC.racks[:2], ("r1",))),
        ModernTopic(TOPIC.name, bytes(16), TOPIC.racks),
        ModernTopic("topic", TOPIC.topic_id, TOPIC.racks),
    ]
    assert len({TOPIC.hash, *(each.hash for each in changed)}) == 5
