"""The documents of ReportInstanceUsage."""

import asyncio

import pytest

from headrace.broker.instances.flow_messages import (
    FullAnswer,
    FullReport,
    decode_answer,
    decode_report,
    encode_answer,
    encode_report,
)
from headrace.broker.instances.storage_sums import Stored
from headrace.errors import ErrorCode, KafkaError
from headrace.instances.flow.leases import UNLIMITED, BrokerUsage, Lease, LeaseAnswer, Report

USAGES = [
    BrokerUsage("acme", 1.5, 2.0, 0.25, 0.0, 100.0, UNLIMITED, leased=True),
    BrokerUsage("globex", 0.0, 2.0, 0.0, 0.0, 100.0, 50.0, leased=False),
]
REPORT = FullReport(Report(1, 7, 3, 2, 5, -86400.0, 1.0, USAGES), {"acme": (1 << 40, True)}, -1)
LEASES = [Lease("acme", 10.0, UNLIMITED, 100.0, UNLIMITED)]
ANSWER = FullAnswer(LeaseAnswer(5, 3, 3.0, 1.0, LEASES), {"acme": Stored(9, is_full=True, is_settled=False)})


def test_a_report_comes_out_as_it_went_in() -> None:
    assert asyncio.run(_there_and_back_report(REPORT)) == REPORT


async def _there_and_back_report(report: FullReport) -> FullReport:
    return await decode_report(await encode_report(report))


def test_an_answer_comes_out_as_it_went_in() -> None:
    async def there_and_back() -> FullAnswer:
        return await decode_answer(await encode_answer(ANSWER))

    assert asyncio.run(there_and_back()) == ANSWER


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        '{"broker": 1}',
        asyncio.run(encode_report(REPORT)) + '\n["u", 5, 0, 0, 0, 0, 0, 0, true]',
        asyncio.run(encode_report(REPORT)) + '\n["u", "acme", 0]',
        asyncio.run(encode_report(REPORT)) + '\n["s", "acme", "x", true]',
        asyncio.run(encode_report(REPORT)) + "\n17",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    for decode in (decode_report, decode_answer):
        with pytest.raises(KafkaError) as error:
            asyncio.run(decode(text))
        assert error.value.code is ErrorCode.INVALID_REQUEST


def test_a_long_report_gives_the_event_loop_turns() -> None:
    usages = [USAGES[0]._replace(instance=f"i{each}") for each in range(2000)]
    report = REPORT._replace(flow=REPORT.flow._replace(usages=usages))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> FullReport:
        counting = asyncio.create_task(count())
        found = await _there_and_back_report(report)
        counting.cancel()
        return found

    assert asyncio.run(main()) == report
    assert turns >= 10
