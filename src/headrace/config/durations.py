"""Durations in ISO 8601, as Java writes them: P1DT2H30M, PT0.5S."""

import re

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?", re.IGNORECASE)


def duration_ms(text: str) -> int:
    """The milliseconds of an ISO 8601 duration of days, hours, minutes and seconds. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is not a duration such as P1DT2H30M")
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[:4])
    fraction_ms = int((found[5] or "").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms
