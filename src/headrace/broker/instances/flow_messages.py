"""The documents of ReportInstanceUsage: what a broker reports, and what the controller answers.

Lines of JSON, so that a long document is written and read in slices:

    report   {"broker": 1, "epoch": 7, "number": 3, ...}                            the head
             ["u", name, in/s, out/s, throttled in s, out s, rate in, out, leased]  an instance's use
             ["s", name, bytes, is full]                                            its storage, counted by this broker
    answer   {"epoch": 5, "number": 3, "valid_for": 3.0, "interval": 1.0, ...}      the head; `takes_sums`: whether the
                                                                                    changes of the storage were enough
             ["l", name, rate in, rate out, limit in, limit out]                    a lease
             ["s", name, bytes, is full, is settled]                                its storage, in all

Numbers that are infinite are `Infinity`, as Python's JSON has them: both sides are headrace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from headrace.broker.instances.storage_sums import Stored
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import Turns
from headrace.instances.flow.leases import BrokerUsage, Lease, LeaseAnswer, Report

USAGE, STORAGE, LEASE = "u", "s", "l"
LINES_PER_TURN = 256


class FullReport(NamedTuple):
    """A report of flow and storage."""

    flow: Report
    sums: Mapping[str, tuple[int, bool]]
    """By instance: the bytes that the broker counts, and whether it holds the storage to be full."""
    sums_epoch: int
    """The epoch of the controller that knows all other sums; -1: there are no others."""


class FullAnswer(NamedTuple):
    """An answer about flow and storage."""

    flow: LeaseAnswer
    storage: Mapping[str, Stored] | None
    """None: the controller does not know the other sums of the broker, so the next report has to have all of them."""


async def encode_report(report: FullReport) -> str:
    """The document of a report."""
    flow = report.flow
    head = {
        "broker": flow.broker_id,
        "epoch": flow.broker_epoch,
        "number": flow.number,
        "answered": flow.answered,
        "controller_epoch": flow.controller_epoch,
        "ends_in": flow.ends_in_s,
        "interval": flow.interval_s,
        "sums_epoch": report.sums_epoch,
    }
    rows = [(USAGE, *each) for each in flow.usages]
    return await _lines(head, rows, ((STORAGE, name, *each) for name, each in report.sums.items()))


async def decode_report(text: str) -> FullReport:
    """Raises INVALID_REQUEST."""
    usages: list[BrokerUsage] = []
    sums: dict[str, tuple[int, bool]] = {}
    turns = Turns(LINES_PER_TURN)
    try:
        lines = _parsed(text)
        head = next(lines)
        for kind, *row in lines:
            if kind == USAGE:
                usages.append(_usage(row))
            elif kind == STORAGE:
                name, size, is_full = row
                sums[_text(name)] = int(size), bool(is_full)
            await turns.count()
        flow = Report(
            int(head["broker"]),
            int(head["epoch"]),
            int(head["number"]),
            int(head["answered"]),
            int(head["controller_epoch"]),
            float(head["ends_in"]),
            float(head["interval"]),
            usages,
        )
        return FullReport(flow, sums, int(head["sums_epoch"]))
    except (ValueError, TypeError, KeyError, StopIteration, RecursionError) as error:
        raise KafkaError(f"this is not a report of usage: {error!r:.200}", ErrorCode.INVALID_REQUEST) from None


async def encode_answer(answer: FullAnswer) -> str:
    """The document of an answer."""
    flow = answer.flow
    head = {
        "epoch": flow.controller_epoch,
        "number": flow.number,
        "valid_for": flow.valid_for_s,
        "interval": flow.interval_s,
        "takes_sums": answer.storage is not None,
    }
    rows = [(LEASE, *each) for each in flow.leases]
    return await _lines(head, rows, ((STORAGE, name, *each) for name, each in (answer.storage or {}).items()))


async def decode_answer(text: str) -> FullAnswer:
    """Raises INVALID_REQUEST."""
    leases: list[Lease] = []
    storage: dict[str, Stored] = {}
    turns = Turns(LINES_PER_TURN)
    try:
        lines = _parsed(text)
        head = next(lines)
        for kind, *row in lines:
            if kind == LEASE:
                name, *numbers = row
                rate_in, rate_out, limit_in, limit_out = map(float, numbers)
                leases.append(Lease(_text(name), rate_in, rate_out, limit_in, limit_out))
            elif kind == STORAGE:
                name, size, is_full, is_settled = row
                storage[_text(name)] = Stored(int(size), bool(is_full), bool(is_settled))
            await turns.count()
        valid_for, interval = float(head["valid_for"]), float(head["interval"])
        answer = LeaseAnswer(int(head["epoch"]), int(head["number"]), valid_for, interval, leases)
        return FullAnswer(answer, storage if head["takes_sums"] else None)
    except (ValueError, TypeError, KeyError, StopIteration, RecursionError) as error:
        raise KafkaError(f"this is not an answer about usage: {error!r:.200}", ErrorCode.INVALID_REQUEST) from None


def _usage(row: list[Any]) -> BrokerUsage:
    name, *numbers, leased = row
    used_in, used_out, held_in, held_out, rate_in, rate_out = map(float, numbers)
    return BrokerUsage(_text(name), used_in, used_out, held_in, held_out, rate_in, rate_out, bool(leased))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.100} is not a name")
    return value


def _parsed(text: str) -> Iterator[Any]:
    return map(json.loads, text.split("\n"))


async def _lines(head: Mapping[str, object], *rows: Iterable[object]) -> str:
    lines = [json.dumps(head)]
    turns = Turns(LINES_PER_TURN)
    for some in rows:
        for each in some:
            lines.append(json.dumps(each))
            await turns.count()
    return "\n".join(lines)
