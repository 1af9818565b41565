"""When the Iceberg face of a table is published: before the next round after one was committed, or later.

A catalog that is away holds no rows up: it is told, and tried again. A run that ends publishes once more, and fails if
that fails.
"""

import time
from collections.abc import Callable
from typing import Final

from headrace.lake.iceberg import IcebergFace

AGAIN_S: Final = 10.0


class Publisher:
    """Publishes one table, in the thread of its runner."""

    def __init__(
        self,
        face: IcebergFace,
        on_trouble: Callable[[Exception], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._face = face
        self._on_trouble = on_trouble
        self._clock = clock
        self._not_before = 0.0
        self.is_due = True
        """Whether there is something to publish. At the start there may be: a run may have been killed."""

    def when_due(self) -> None:
        """Publish if there is something, and the last trouble is some seconds ago."""
        if not self.is_due or self._clock() < self._not_before:
            return
        try:
            self._face.publish()
        except Exception as trouble:  # of a catalog, a store, a server: pyiceberg has many
            self._not_before = self._clock() + AGAIN_S
            self._on_trouble(trouble)
        else:
            self.is_due = False

    def finish(self) -> None:
        """Publish what there is. Raises what pyiceberg does."""
        if self.is_due:
            self._face.publish()
            self.is_due = False
