"""Reads documents of JSON: by orjson where it is installed, else by the standard library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def json_reader() -> Callable[[bytes], Any]:
    """A function of a document's bytes; what it raises is a ValueError."""
    try:
        import orjson
    except ModuleNotFoundError:
        import json

        return json.loads
    return orjson.loads
