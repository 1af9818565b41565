"""A broker that is killed while it removes an instance ends the removal when it is back."""

from pathlib import Path

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.operations.instance_admin import InstanceAdmin
from headrace.client.operations.user_admin import UserAdmin
from headrace.testing import Broker
from headrace.types import TopicPartition
from tests.eventually import eventually

pytestmark = pytest.mark.slow

TOPICS, USERS = 20, 40


def test_a_removal_ends_although_the_broker_is_killed_twice(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data", subprocess=True) as broker:
        with Cluster(broker.bootstrap) as cluster:
            admin = InstanceAdmin(cluster)
            for name in ("gone", "stays"):
                admin.create_instance(name, {"port": None})
                Admin(cluster).create_topics([NewTopic(f"{name}.t{number}", 1) for number in range(TOPICS)])
                GroupAdmin(cluster).commit(f"{name}.app", {TopicPartition(f"{name}.t0", 0): 0})
                for number in range(USERS):
                    UserAdmin(cluster).set_password(f"{name}.u{number}", "secret", ("SCRAM-SHA-256",))
            admin.delete_instance("gone", with_data=True, grace_ms=0)
        broker.kill()
        broker.restart()
        with Cluster(broker.bootstrap) as cluster:
            eventually(lambda: len(Admin(cluster).list_topics()) == TOPICS, "the end of its topics")
        broker.kill()
        broker.restart()
        with Cluster(broker.bootstrap) as cluster:
            admin = InstanceAdmin(cluster)
            eventually(lambda: len(admin.describe_instances()) == 1, "the end of the removal")
            assert [each.instance.name for each in admin.describe_instances()] == ["stays"]
            assert {each.name.partition(".")[0] for each in Admin(cluster).list_topics()} == {"stays"}
            assert [each.group_id for each in GroupAdmin(cluster).list_groups()] == ["stays.app"]
            assert len(UserAdmin(cluster).list_users()) == USERS
