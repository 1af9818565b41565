"""The cases of the second grid, of clients that are not of this time; the decorator that makes a test one of them."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.old.old_clients import OLD_CLIENTS

OLD_CASES = {
    "create": "writes to a topic that is not there yet, reads back",
    "none": "codec none: every client, old and new, reads it equal",
    "gzip": "codec gzip",
    "snappy": "codec snappy",
    "lz4": "codec lz4",
    "read": "reads what every client, old and new, wrote at the same time",
    "acks=0": "acks=0",
    "too large": "a record above the limit: the typed error",
    "offset": "reads from an offset inside a compressed set",
    "end": "reads only what is new",
    "list offsets": "lists offsets: first, end; by time, where it has ListOffsets 1",
    "commit": "commits an offset without being a member, and finds it",
    "group": "group: two members share, one leaves, a third resumes",
}
"""Column of the printed grid: line of README's second table."""

Test = Callable[..., None]


def old_case(*columns: str) -> Callable[[Test], Test]:
    """Makes a test of an old client a case of the grid; programs start once, so they are all one worker's."""
    marks = [pytest.mark.slow, pytest.mark.xdist_group("old-clients")]
    cells: list[Any] = [
        pytest.param((client, column), id=f"{client.name}-{column}".replace(" ", "-"), marks=marks)
        for client in OLD_CLIENTS
        for column in columns
        if column not in client.gaps
    ]
    return pytest.mark.parametrize("cell", cells, indirect=True)
