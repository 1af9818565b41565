"""Programs on Kafka Streams, by client."""

import subprocess
from pathlib import Path
from typing import Protocol, runtime_checkable


@runtime_checkable
class StreamingClient(Protocol):
    """A client that has Kafka Streams."""

    def build_word_count(self) -> None:
        """Fetch what it needs, which may take minutes the first time."""

    def count_words(
        self, bootstrap: str, source: str, target: str, directory: Path, protocol: str
    ) -> subprocess.Popen[bytes]:
        """A running word count in a group of this protocol (classic or streams)."""
