"""Members of a streams group against one coordinator: what each sends, and what it was told."""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from headrace.config import BrokerConfig
from headrace.coordinators.groups.group_event import Actions
from headrace.coordinators.groups.modern.topics import ModernTopic
from headrace.coordinators.groups.streams.assignment import AssigningTasks
from headrace.coordinators.groups.streams.configured_topology import Status
from headrace.coordinators.groups.streams.group import StreamsGroup
from headrace.coordinators.groups.streams.requests import StreamsBeat
from headrace.coordinators.runtime import Effect
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.coordinators.groups.scenario import GROUP, World
from tests.coordinators.groups.streams.samples import word_count

Request = m.StreamsGroupHeartbeatRequest
Response = m.StreamsGroupHeartbeatResponse
Owned = dict[str, set[int]]


@dataclass
class Member:
    """A thread of the application, as Kafka's client has it."""

    name: str
    process: str
    epoch: int = 0
    active: Owned = field(default_factory=dict)
    standby: Owned = field(default_factory=dict)
    answers: list[StreamsBeat] = field(default_factory=list)

    @property
    def tasks(self) -> list[str]:
        """The active tasks, as subtopology_partition."""
        return sorted(f"{name}_{each}" for name, some in self.active.items() for each in some)

    @property
    def standby_tasks(self) -> list[str]:
        return sorted(f"{name}_{each}" for name, some in self.standby.items() for each in some)


class StreamsWorld(World):
    """A coordinator, its log, and the members of one application."""

    topology: Request.Topology

    def __init__(self, settings: dict[str, Any] | None = None, topology: Request.Topology | None = None) -> None:
        self.computing: list[AssigningTasks] = []
        no_delays = {"streams_initial_rebalance_delay_ms": 0, "streams_assignment_interval_ms": 0}
        super().__init__(BrokerConfig(**{**no_delays, **(settings or {})}))
        self.topology = topology or word_count()
        self.now_ms = 1_000

    def carry_out(self, actions: Actions) -> None:
        """Keeps assignments that are to be computed off the event loop."""
        self.computing += [each.what for each in actions if isinstance(each, Effect)]
        super().carry_out([each for each in actions if not isinstance(each, Effect)])

    def computed(self, *, fails: bool = False) -> None:
        """The oldest of these assignments is done, or has failed."""
        assigning = self.computing.pop(0)
        targets = None if fails else assigning.compute()
        self.carry_out(self.coordinator.streams.assigned(assigning, targets, self.now_ms))

    @property
    def streams_group(self) -> StreamsGroup:
        group = self.coordinator._groups.get(GROUP)
        assert isinstance(group, StreamsGroup)
        return group

    def make(self, **partitions: int) -> None:
        """Creates topics, or gives them other partition counts."""
        topics = {name.replace("_", "-"): count for name, count in partitions.items()}
        self.topics.put(*(ModernTopic(name, _id_of(name), ((),) * count) for name, count in topics.items()))

    def make_all(self, count: int = 2) -> None:
        """Creates every topic of the word count."""
        self.make(lines=count, words_repartition=count, counts_changelog=count)

    def send(self, member: Member, **fields: Any) -> None:
        """A heartbeat; its answer is put to the member's answers when it comes."""
        request = Request(
            group_id=GROUP,
            member_id=member.name,
            member_epoch=member.epoch,
            endpoint_information_epoch=fields.pop("endpoint_information_epoch", -1),
            **fields,
        )
        actions = self.coordinator.streams.heartbeat(
            request, "client", "/127.0.0.1", member.answers.append, self.now_ms
        )
        self.carry_out(actions)

    def enter(self, name: str, process: str | None = None, **fields: Any) -> Member:
        """A member that joins, and what it was told."""
        member = Member(name, process or name)
        self.reenter(member, **fields)
        return member

    def reenter(self, member: Member, **fields: Any) -> Response:
        member.epoch, member.active, member.standby = 0, {}, {}
        joining = {
            "process_id": member.process,
            "rebalance_timeout_ms": 60_000,
            "topology": self.topology,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }
        self.send(member, **{**joining, **fields})
        return self.take_in(member)

    def beat(self, member: Member, *, names_tasks: bool = True, **fields: Any) -> Response:
        """A heartbeat of a member, which has carried out what it was told before."""
        if names_tasks:
            fields = {
                "active_tasks": _ids(member.active),
                "standby_tasks": _ids(member.standby),
                "warmup_tasks": [],
                **fields,
            }
        self.send(member, **fields)
        return self.take_in(member)

    def take_in(self, member: Member) -> Response:
        """The member does what the newest answer says."""
        answer = member.answers[-1].response
        if answer.error_code == ErrorCode.NONE:
            member.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                member.active = _owned(answer.active_tasks)
                member.standby = _owned(answer.standby_tasks or [])
        return answer

    def settle(self, *members: Member) -> None:
        """Heartbeats until nothing changes."""
        for _ in range(10):
            before = [(each.epoch, each.tasks, each.standby_tasks) for each in members]
            for each in members:
                self.beat(each)
            if before == [(each.epoch, each.tasks, each.standby_tasks) for each in members]:
                return
        raise AssertionError(f"the members do not settle: {members}")

    def restart(self) -> None:
        """Another broker takes over, which has nothing but the log."""
        self.unload()
        self.start()


def _id_of(topic: str) -> bytes:
    return blake2b(topic.encode(), digest_size=16).digest()


def statuses(answer: Response) -> list[Status]:
    return [Status(each.status_code) for each in answer.status or ()]


def _ids(tasks: Owned) -> list[Request.TaskIds]:
    return [Request.TaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]


def _owned(listed: list[Response.TaskIds]) -> Owned:
    return {each.subtopology_id: set(each.partitions) for each in listed}
