"""Sends what a program and its child processes write to stderr to a file."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def stderr_into(file: Path) -> Iterator[None]:
    """Append stderr to `file` meanwhile: the JVM's notes, and Spark's of each Python process, help nobody here."""
    sys.stderr.flush()
    saved = os.dup(2)
    with file.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
