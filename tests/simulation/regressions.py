"""Seeds that once failed, and what each found. `make test` runs a third of them each day.

A seed tells the same story only as long as simulator and broker ask chance for the same things in the same order, so
with time these become ordinary seeds. What they found has a test or a mutant of its own.
"""

from typing import NamedTuple

from tests.simulation.network import CALM, Weather
from tests.simulation.plan import (
    CRASH,
    CUT,
    ELECT,
    ISOLATE,
    PAUSE,
    REASSIGN,
    SESSION,
    STOP,
    Plan,
    with_instances,
)


class Regression(NamedTuple):
    """A seed and what it found; with the plan, where the seed draws another one by now."""

    seed: int
    found: str
    plan: Plan | None = None


_CRASHES_OF_OLD_FORMATS = Plan(
    faults=(CRASH,),
    failures_max=2,
    gap_ms=500,
    weather=Weather(),
    damage=0.05,
    topic_settings={"segment.bytes": "1048576"},
).with_format("0.10.2")

_INSTANCES = with_instances(Plan(weather=Weather()))
_LEADERS_MOVE = _INSTANCES._replace(faults=(PAUSE, CUT, ELECT))
_SESSIONS_END = with_instances(
    Plan(
        replicas=2,
        min_insync_replicas=1,
        faults=(PAUSE, SESSION, ISOLATE),
        weather=Weather(),
        session_timeout_ms=1500,
        has_group=True,
        topic_settings={"segment.bytes": "600", "message.format.version": "3.0"},
    )
)
_SESSIONS_END = _SESSIONS_END._replace(
    gap_ms=900, settings={**_SESSIONS_END.settings, "headrace.flow.report.ms": "200"}
)
_REPLICAS_MOVE = _INSTANCES._replace(faults=(CRASH, ISOLATE, REASSIGN, STOP))

REGRESSIONS = (
    Regression(
        600412, "a producer's batch was refused, and its retry was called a duplicate of what was never written"
    ),
    Regression(
        600167, "the nemesis took the power of every replica of __consumer_offsets-0, as it counted events alone"
    ),
    Regression(7000568, "the nemesis took a broker for whole that had crashed, and was not back in the ISR"),
    Regression(
        7200001, "a broker that stopped logged a failed LeaderAndIsr, as the settings of a topic could not be read"
    ),
    Regression(
        7400034,
        "without leader epochs, a follower truncated to its high watermark though its leader was dead",
        _CRASHES_OF_OLD_FORMATS._replace(min_insync_replicas=1, failures_max=3, damage=0.0),
    ),
    Regression(
        7400028,
        "without leader epochs, a follower truncated to its high watermark, and its leader died before the next fetch",
        _CRASHES_OF_OLD_FORMATS._replace(partitions=3, reads_followers=True),
    ),
    Regression(
        60058, "a broker waited 30 s for the answer of a coordinator that had lost its power, and refused transactions"
    ),
    Regression(425, "found in a long run before the list was kept"),
    Regression(5464, "found in a long run before the list was kept"),
    Regression(5554, "found in a long run before the list was kept"),
    Regression(5573, "found in a long run before the list was kept"),
    Regression(
        4,
        "a broker refused produces for ever, as the controller no longer told it of an instance that had been full",
        _INSTANCES._replace(weather=CALM, instance_capacity=8_000),
    ),
    Regression(
        19,
        "a broker that came back reported changes of its sums to a controller that had dropped the rest",
        _LEADERS_MOVE._replace(instance_capacity=8_000),
    ),
    Regression(
        326,
        "a broker missed the listeners that another one opened, as a watch fired before it was noted",
        _LEADERS_MOVE._replace(weather=CALM, instance_capacity=16_000),
    ),
    Regression(21, "a broker still served a deleted instance when the next one had its name", _LEADERS_MOVE),
    Regression(
        25,
        "a new instance found the offsets of the one that had had its name",
        _REPLICAS_MOVE._replace(instance_capacity=8_000),
    ),
    Regression(
        760282139709,
        "the simulator wanted writes of an instance that one topic had filled while no controller was there",
    ),
    Regression(
        906416557954, "the simulator counted what one replica had still to delete, when the instance had room again"
    ),
    Regression(
        610007199581, "an instance was gone, and its group came back: a coordinator had not heard that it is one"
    ),
    Regression(
        687549832749,
        "a leader that had lost its power shrank the ISR by a request from before, and led without its records",
    ),
    Regression(
        336847660231, "the simulator lost two answers of a connection that it reset, and delivered the one behind them"
    ),
    Regression(
        990480018274, "the simulator did not wait for a grace period by the clock of a controller that was set back"
    ),
    Regression(
        182170043298, "a broker whose session had ended served old offsets while the controller waited for the store"
    ),
    Regression(
        75921253790,
        "a leader whose replica was moved away while it was cut off went on serving share fetches with nothing",
    ),
    Regression(
        241952033494, "the simulator counted the use of a transactional id from an answer that came seconds late"
    ),
    Regression(
        471033806715, "the simulator gave an instance no time to be seen gone that went at the end of its patience"
    ),
    Regression(
        792320548059, "the simulator did not wait for a time-out by the clock of a coordinator that was set back"
    ),
    Regression(
        353282153718,
        "a broker repeated a request for a topic until a controller was there, and the instance was gone by then",
    ),
    Regression(
        195944063099,
        "a new controller shared out what the one before, which had only lost its session, had leased to itself",
    ),
    Regression(
        45,
        "a lease for one direction of an instance held the other one at a share that had moved to another broker",
        _SESSIONS_END,
    ),
    Regression(204199327158, "a follower's truncation did not find a snapshot that its leader's log start had removed"),
)
