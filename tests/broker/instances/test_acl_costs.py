"""What a change of an instance's rules costs does not depend on the rules of others."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from headrace.broker.instances.acls import InstanceAcls
from headrace.broker.instances.names import InstanceNames
from headrace.errors import KafkaError
from headrace.in_slices import Turns
from headrace.instances.definition import Instance
from headrace.instances.names import Namespace
from headrace.metadata.stored_acls import Decide
from headrace.security.access import Operation, ResourceType
from headrace.security.acls.authorizer import AclAuthorizer
from headrace.security.acls.filters import PatternFilter
from headrace.security.acls.model import Entry, Pattern, PatternType, Permission

ENTRY = Entry("User:alice", "*", Operation.READ, Permission.ALLOW)
OWN = Entry("User:acme.alice", "*", Operation.READ, Permission.ALLOW)


class Rules(AclAuthorizer):
    """Nobody may look at all patterns."""

    @property
    def patterns(self) -> Sequence[Pattern]:
        raise AssertionError("all patterns of the cluster were looked at")


def topic(name: str) -> Pattern:
    return Pattern(ResourceType.TOPIC, name, PatternType.LITERAL)


async def test_rules_are_counted_and_listed_without_a_look_at_those_of_others() -> None:
    rules = Rules()
    for number in range(3):
        rules.replace(topic(f"acme.t{number}"), [OWN])
        rules.replace(topic(f"beta.t{number}"), [OWN])

    async def change(changes: Mapping[Pattern, Decide]) -> dict[Pattern, KafkaError]:
        errors = {}
        for pattern, decide in changes.items():
            try:
                rules.replace(pattern, decide(rules.entries(pattern)))
            except KafkaError as error:
                errors[pattern] = error
        return errors

    cluster: Any = SimpleNamespace(rules=rules, change=change)
    instance = Instance("acme", "AAAAAAAAQACAAAAAAAAAAA", acls_max=4)
    view: Any = SimpleNamespace(instance=instance, names=InstanceNames(Namespace("acme")))
    acls = InstanceAcls(cluster, view)
    assert await acls.change({topic("fourth"): lambda before: [*before, ENTRY]}) == {}
    assert list(await acls.change({topic("fifth"): lambda before: [*before, ENTRY]})) == [topic("fifth")]
    everything = PatternFilter(ResourceType.ANY, None, PatternType.ANY)
    found = await acls.matching_patterns(everything, Turns())
    assert {each.name for each in found} == {"t0", "t1", "t2", "fourth"}
