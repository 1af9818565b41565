"""Garbage that is large: by the number of its objects alone it would stay for minutes, in gigabytes.

The disks of simulated brokers and requests of a hundred megabytes are few objects, and lie in cycles that only a full
collection finds.
"""

import gc

import psutil

GROWTH_BYTES_MAX = 256 << 20
_process = psutil.Process()
_resident_bytes = GROWTH_BYTES_MAX


def collect_if_large() -> None:
    """Collects all garbage if the process has grown much since that was done last."""
    global _resident_bytes
    if _process.memory_info().rss - _resident_bytes > GROWTH_BYTES_MAX:
        gc.collect()
        _resident_bytes = _process.memory_info().rss
