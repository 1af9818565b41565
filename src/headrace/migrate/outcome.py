"""The result of a migration, or of its dry run."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class MigrationOutcome:
    """One migration. In a dry run nothing was written, and `partitions` have no offsets."""

    direction: str
    cluster_id: str
    broker_id: int
    metadata_from: str
    was_clean: bool
    is_dry_run: bool
    directories: list[tuple[str, str]] = field(default_factory=list)  # from, to
    topics: int = 0
    size_bytes: int = 0
    partitions: list[dict[str, str | int]] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    next_steps: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            **asdict(self),
            "directories": [{"from": source, "to": target} for source, target in self.directories],
        }


def shown(paths: list[Path]) -> str:
    """Directories as `log.dirs` has them."""
    return ",".join(map(str, paths))
