"""What a decoder of values returns: typed columns, and the values that are not whole in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow

from headrace.columns.arrow_types import BinaryArray, RecordBatch

RESCUED = "rescued_value"
"""The usual name of the column of rescued values."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One row for each value that was given, in the same order.

    `rescued` has the value (binary) where some of it is not in `columns`, and null elsewhere. A null value is null in
    all columns, and not rescued.
    """

    columns: RecordBatch
    rescued: BinaryArray

    @property
    def rescued_count(self) -> int:
        """How many values were rescued."""
        return len(self.rescued) - int(self.rescued.null_count)

    def beside(self, batch: RecordBatch, rescued: str | None = RESCUED) -> RecordBatch:
        """`batch` with the columns on its right, and with those rescued (None: without).

        ValueError for rows that are not those of the batch, and for a name that the batch has already.
        """
        if len(batch) != len(self.rescued):
            raise ValueError(f"{len(batch)} rows cannot stand beside {len(self.rescued)} decoded values")
        extra = self.columns.schema.names + ([] if rescued is None else [rescued])
        clashing = [name for name in dict.fromkeys(extra) if (batch.schema.names + extra).count(name) > 1]
        if clashing:
            raise ValueError(f"{', '.join(clashing)}: names of the record's own columns, or given twice")
        arrays = [*batch.columns, *self.columns.columns, *([] if rescued is None else [self.rescued])]
        return pyarrow.RecordBatch.from_arrays(arrays, names=batch.schema.names + extra)


def joined(parts: Sequence[Decoded]) -> Decoded:
    """The rows of all parts, one after the other; there is at least one part, and all have the same schema."""
    if len(parts) == 1:
        return parts[0]
    batches = pyarrow.Table.from_batches([part.columns for part in parts]).combine_chunks().to_batches()
    columns = batches[0] if batches else parts[0].columns
    return Decoded(columns, pyarrow.concat_arrays([part.rescued for part in parts]))
