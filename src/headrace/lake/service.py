"""Runs the table of one topic, by its definition: alone and once, or for good and with others."""

import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field

from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.config.lake_definition import LakeDefinition
from headrace.lake.core.plan import DataLoss, RoundLimits
from headrace.lake.decoders import make_decoder
from headrace.lake.delta.location import Location
from headrace.lake.iceberg import IcebergFace
from headrace.lake.members import Members
from headrace.lake.publisher import Publisher
from headrace.lake.runner import LakeRunner, Round, RunSettings
from headrace.lake.topic_log import TopicLog
from headrace.lake.upkeep import Upkeep, UpkeepSettings
from headrace.lake.widening import WIDEN_BYTES
from headrace.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What a run may choose; the rest is the definition's."""

    once: bool = False
    """Write all that the topic has now, in all partitions, and end."""
    group: str | None = None
    linger_ms: int = RoundLimits().linger_ms
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)
    read_committed: bool = True
    widen_bytes: int = WIDEN_BYTES


def run_table(
    bootstrap: str,
    client: ClientSettings,
    topic: str,
    definition: LakeDefinition,
    options: ServiceOptions,
    end: threading.Event,
    on_round: Callable[[Round], None],
    on_trouble: Callable[[Exception], None],
) -> None:
    """Write the table until `end` is set, or once. Raises the errors of `LakeRunner.run`."""
    location = Location.of(definition.table)
    upkeep = Upkeep(location, options.upkeep)
    limits = RoundLimits(linger_ms=options.linger_ms, data_loss=DataLoss(definition.data_loss))
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(bootstrap, client))
        cluster.topic(topic)  # a wrong address or name is told at once, and later ones waited for
    with ExitStack() as stack:
        patient = client.replace(waits_for_brokers=True)
        cluster = stack.enter_context(Cluster(bootstrap, patient))
        log = TopicLog(cluster, topic, headers=definition.headers, read_committed=options.read_committed)
        members = None if options.once else stack.enter_context(Members(bootstrap, patient, topic, options.group))

        publisher = None
        if definition.format == "iceberg":
            publisher = Publisher(IcebergFace(location, definition.catalog), on_trouble)

        def after_round(done: Round) -> None:
            on_round(done)
            if members is not None:
                members.tell(done.slices)
            upkeep.after_round()
            if publisher is not None:
                publisher.is_due = True

        def assigned() -> Collection[TopicPartition]:
            if publisher is not None:
                publisher.when_due()
            return log.partitions() if members is None else members.assigned()

        runner = LakeRunner(
            RunSettings(location, definition.job, definition.partition_by, limits, widen_bytes=options.widen_bytes),
            log,
            lambda schema: make_decoder(definition, schema),
            assigned,
            after_round,
            on_trouble,
        )
        runner.run(end, once=options.once)
        if publisher is not None:
            publisher.finish()
