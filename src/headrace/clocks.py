"""The clocks of this machine. A broker is given its clock (`broker.environment`); this is the real one."""

import time


def wall_clock_ms() -> int:
    """The time of day, in ms since 1970."""
    return time.time_ns() // 1_000_000
