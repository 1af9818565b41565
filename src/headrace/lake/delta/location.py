"""Where a table is: a local directory, or a URI that the table library knows.

    ./tables/orders    file:///tables/orders     written with system calls, and synced before a commit
    s3://b/orders      gs://b/orders  az://...   written through the library's own object store

Credentials of object stores come from where the library looks for them (the environment, or `storage_options`). An
object is complete or absent, so nothing is to be synced there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake.fs import DeltaStorageHandler
from pyarrow import fs


@dataclass(frozen=True, slots=True)
class Location:
    """`directory` is None where the table is not on a mounted file system. `storage_options` may hold secrets."""

    uri: str
    directory: Path | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, place: Location | Path | str, storage_options: Mapping[str, str] | None = None) -> Location:
        """The location of a path or URI. Raises ValueError for a percent sign in a path, which deltalake would decode,
        and for a file URI with a host."""
        if isinstance(place, Location):
            return place
        text = str(place)
        if isinstance(place, str) and "://" in text and not text.startswith("file://"):
            return cls(text.rstrip("/"), None, dict(storage_options or {}))
        if text.startswith("file://") and not text.startswith("file:///"):
            raise ValueError(f"{text} names a host: write file:///PATH")
        directory = Path(text.removeprefix("file://")).absolute()
        if "%" in str(directory):
            raise ValueError(f"a Delta table cannot be stored at {directory}: choose a path without a percent sign")
        return cls(directory.as_uri(), directory, dict(storage_options or {}))

    def __str__(self) -> str:
        return self.uri if self.directory is None else str(self.directory)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.uri.rstrip("/").rpartition("/")[2] if self.directory is None else self.directory.name

    @property
    def options(self) -> dict[str, str] | None:
        """The storage options as deltalake takes them."""
        return dict(self.storage_options) or None

    def entries(self) -> list[str]:
        """The names of what is there, without those that a reader of tables skips."""
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)
            found = [one.name for one in self.directory.iterdir()]
        else:
            found = [one.base_name for one in self._store().get_file_info(fs.FileSelector("", allow_not_found=True))]
        return sorted(name for name in found if not name.startswith(("_", ".")))

    def create(self, path: str) -> Any:
        """A new file below the table, open for writing; its folder is made."""
        if self.directory is None:
            return self._store().open_output_stream(path)
        place = self.directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place.open("xb")

    def open(self, path: str) -> Any:
        """A file below the table, open for reading."""
        return self._store().open_input_file(path) if self.directory is None else (self.directory / path).open("rb")

    def sync(self, paths: Iterable[str]) -> None:
        """Returns when the files and their names are on the disk."""
        if self.directory is None:
            return
        folders = {self.directory}
        for path in paths:
            place = self.directory / path
            sync(place)
            folders.add(place.parent)
        for folder in folders:
            sync(folder)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files to which no commit refers; a folder that becomes empty goes, too."""
        for path in paths:
            if self.directory is None:
                with suppress(FileNotFoundError):
                    self._store().delete_file(path)
                continue
            place = self.directory / path
            place.unlink(missing_ok=True)
            if place.parent != self.directory:
                with suppress(OSError):
                    place.parent.rmdir()

    def _store(self) -> fs.FileSystem:
        return fs.PyFileSystem(DeltaStorageHandler(self.uri, self.options))


def sync(path: Path) -> None:
    """Returns when a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
