"""The exchange of a broker with the master: each interval a report, and its answer put in force.

    count the storage ─▶ read the meters ─▶ report ─▶ the controller, in the process or by ReportInstanceUsage
    tune the gates    ◀─ leases, storage  ◀─ answer ─┘     an answer that lowers a rate by much is acknowledged at once

A report that is not answered within the interval is lost; the next one has the same meaning. The steps towards F, when
no controller answers, are taken here too: each interval the gates are tuned to what is in force by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.broker.instances.flow_log_lines import FlowLogLines
from headrace.broker.instances.flow_messages import (
    FullAnswer,
    FullReport,
    decode_answer,
    encode_report,
)
from headrace.errors import ErrorCode, KafkaError, known_code
from headrace.in_slices import Turns
from headrace.instances.flow.leases import Report
from headrace.instances.flow.meter import Metered
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.broker.instances.flow_host import FlowHost
    from headrace.broker.instances.flow_rates import FlowRates
    from headrace.broker.instances.flow_throttling import InstanceThrottling
    from headrace.broker.instances.storage_counts import StorageCounts
    from headrace.metadata.metadata_cache import MetadataCache
    from headrace.network.peers.broker_addresses import BrokerAddresses
    from headrace.network.peers.peers import Peers
    from headrace.types import BrokerId

log = logging.getLogger(__name__)

LANE = "instances"
METERS_PER_TURN = 200
NOT_NOW = -2
"""In place of an epoch: the report says nothing of the storage."""
WARN_EVERY_S = 60.0
NEVER = float("-inf")


class FlowReports:
    """The exchange of one broker."""

    def __init__(
        self,
        broker_id: BrokerId,
        flows: Mapping[str, InstanceThrottling],
        rates: FlowRates,
        counts: StorageCounts,
        host: FlowHost,
        *,
        broker_epoch: Callable[[], int],
        metadata: MetadataCache,
        addresses: BrokerAddresses,
        peers: Peers,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._broker_id, self._broker_epoch = broker_id, broker_epoch
        self._flows, self._rates, self._counts, self._host = flows, rates, counts, host
        self._metadata, self._addresses, self._peers, self._loop = metadata, addresses, peers, loop
        self._lines = FlowLogLines()
        self._failed_since = self._warned_at = NEVER
        self.reported_at = loop.time()
        """When the last report was made."""

    async def run(self) -> None:
        """Exchanges until it is cancelled."""
        while True:
            began = self._loop.time()
            try:
                await self._exchange()
            except Exception:
                log.exception("the use of instances could not be reported")
            interval = self._rates.leases.interval_s
            await asyncio.sleep(max(began + interval - self._loop.time(), interval / 10))

    async def _exchange(self) -> None:
        await self._counts.count()
        used = await self._metered()
        leases, now, turns = self._rates.leases, self._loop.time(), Turns(METERS_PER_TURN)
        self.reported_at = now
        usages = []
        for usage in leases.reporting(used, now):
            usages.append(usage)
            await turns.count()
        self._tune()
        sums, epoch = self._counts.sums()
        answer = await self._send(FullReport(leases.report_of(usages, now), sums, epoch))
        if answer is None or not leases.accept(answer.flow, self._loop.time()):
            return
        self._counts.answered(answer.storage, answer.flow.controller_epoch)
        self._tune()
        if leases.is_to_acknowledge:
            await self._acknowledge(leases.acknowledgement(self._loop.time()))

    async def _acknowledge(self, report: Report) -> None:
        answer = await self._send(FullReport(report, {}, NOT_NOW))
        if answer is not None and self._rates.leases.accept(answer.flow, self._loop.time()):
            self._tune()

    async def _metered(self) -> list[tuple[str, Metered, Metered]]:
        """What each instance used since the last report, of those that used anything."""
        used, turns, now = [], Turns(METERS_PER_TURN), self._loop.time()
        for name, flow in list(self._flows.items()):
            metered_in, metered_out = flow.take_metered()
            if metered_in.bytes_per_s or metered_in.throttled_s:
                self._log(name, "in", metered_in, now)
            if metered_out.bytes_per_s or metered_out.throttled_s:
                self._log(name, "out", metered_out, now)
            elif not (metered_in.bytes_per_s or metered_in.throttled_s):
                continue
            used.append((name, metered_in, metered_out))
            await turns.count()
        self._lines.tick(now)
        return used

    def _log(self, name: str, direction: str, metered: Metered, now: float) -> None:
        limits = self._rates.limits(name)
        if metered.throttled_s and limits is not None:
            at = 0 if direction == "in" else 1
            self._lines.metered(name, direction, metered, self._rates.rates(name)[at], limits[at], now)

    def _tune(self) -> None:
        """Puts what is in force now in force: at once where connections are held, at its next request elsewhere."""
        self._rates.generation += 1
        for flow in list(self._flows.values()):
            if flow.is_holding:
                flow.tune()

    async def _send(self, report: FullReport) -> FullAnswer | None:
        """The answer of the controller; None if there is none in time."""
        try:
            if self._host.is_here:
                answer = await self._host.receive(report)
            else:
                answer = await self._ask(report)
        except KafkaError as error:
            self._failed(error)
            return None
        self._failed_since = NEVER
        return answer

    async def _ask(self, report: FullReport) -> FullAnswer:
        address = self._addresses.address_of(self._metadata.controller_id)
        if address is None:
            raise KafkaError("the controller is not known", ErrorCode.NETWORK_EXCEPTION)
        request = m.ReportInstanceUsageRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), report=await encode_report(report)
        )
        response = await self._peers.send(
            address,
            request,
            m.ReportInstanceUsageResponse,
            timeout_ms=int(self._rates.leases.interval_s * 900),
            lane=LANE,
        )
        if response.error_code:
            raise KafkaError(response.error_message or "", known_code(response.error_code))
        return await decode_answer(response.answer)

    def _failed(self, error: KafkaError) -> None:
        """Says so when no controller has answered for long: the leases end then."""
        now = self._loop.time()
        if self._failed_since == NEVER:
            self._failed_since = now
        elif not self._rates.leases.is_led(now) and now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning(
                "no controller has answered reports of instances for %.0f s; their limits are shared by partitions: %s",
                now - self._failed_since, error,
            )  # fmt: skip
