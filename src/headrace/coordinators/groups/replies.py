"""The reply type of an open request to the group coordinator: a call with its response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Reply: TypeAlias = "Callable[[Any], None]"
