"""Runs of system calls do the same compiled and uncompiled, and their errors come back as those of single calls."""

import errno
import os
from array import array
from pathlib import Path
from types import ModuleType

import pytest

from headrace.errors import StorageError
from headrace.log import disk_calls, files, truncation
from headrace.log.disk_calls import NO_FAILURE
from headrace.log.files import LocalFiles, PathText, sync_open
from headrace.log.watched_files import DirectoryWatch, WatchedFiles
from tests.log.support import NOW_MS, append, no_descriptors, open_log
from tests.uncompiled import uncompiled

FORMS = pytest.mark.parametrize("form", [disk_calls, uncompiled(disk_calls)], ids=["compiled", "uncompiled"])
HOLE_BYTES = 1 << 20


@FORMS
def test_files_are_synced_up_to_the_first_that_cannot_be(form: ModuleType, tmp_path: Path) -> None:
    opened = [os.open(tmp_path / f"{number}", os.O_RDWR | os.O_CREAT) for number in range(2)]
    assert form.sync_files(array("i", opened)) == NO_FAILURE
    assert form.sync_files(array("i")) == NO_FAILURE
    reading, writing = os.pipe()
    assert form.sync_files(array("i", [*opened, reading, opened[0]])) == (2, errno.EINVAL)
    for each in (*opened, reading, writing):
        os.close(each)


@FORMS
def test_a_directory_is_synced_if_there_is_one(form: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert form.sync_directory(os.fsencode(tmp_path)) == 0
    assert form.sync_directory(os.fsencode(tmp_path / "gone")) == errno.ENOENT
    assert form.sync_directory(os.fsencode(tmp_path / "file")) == errno.ENOTDIR
    assert form.sync_directory(b"/proc") == -errno.EINVAL, "the sync failed, and not the open before it"
    with no_descriptors():
        assert form.sync_directory(os.fsencode(tmp_path)) == errno.EMFILE
    assert len(os.listdir("/proc/self/fd")) < 1000


@FORMS
def test_each_file_is_removed_whatever_becomes_of_the_others(form: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    for name in ("a", "ö b", "z"):
        (tmp_path / name).touch()
    names = ["a", "gone", "directory", "ö b", "z"]
    data = b"".join(os.fsencode(tmp_path / name) + b"\0" for name in names)
    codes = list(form.remove_files(data, len(names)))
    assert codes[2] in (errno.EISDIR, errno.EPERM)
    assert codes[:2] == [0, 0] and codes[3:] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["directory"]
    assert list(form.remove_files(b"", 0)) == []


@FORMS
def test_a_hole_takes_the_place_of_what_was_there(form: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (None, b"x" * 100, b"x" * (HOLE_BYTES + 1)):  # the first shows that the device has holes
        if content is not None:
            path.write_bytes(content)
        assert form.make_hole(os.fsencode(path), HOLE_BYTES) == 0
        assert path.stat().st_size == HOLE_BYTES
        assert path.stat().st_blocks * 512 < HOLE_BYTES
        assert not any(path.read_bytes())
    assert form.make_hole(os.fsencode(tmp_path / "gone" / "file"), 1) == errno.ENOENT
    assert form.make_hole(os.fsencode(tmp_path), 1) == errno.EISDIR


def test_what_could_not_be_removed_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    refused = LocalFiles().remove_all([str(tmp_path / "file"), tmp_path / "directory", str(tmp_path / "gone")])
    assert [*refused] == [str(tmp_path / "directory")]
    assert refused[str(tmp_path / "directory")].errno in (errno.EISDIR, errno.EPERM)
    assert not (tmp_path / "file").exists()


def test_a_sync_that_fails_among_others_fails_the_log_and_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".lock").touch()
    watch = DirectoryWatch(LocalFiles(), [tmp_path])
    log = open_log(tmp_path / "flights-0", files=WatchedFiles(LocalFiles(), watch))
    append(log, b"v")
    synced: list[int] = []

    def sync_files(fds: "array[int]") -> tuple[int, int]:
        synced.extend(fds)
        return 0, errno.EIO

    monkeypatch.setattr(disk_calls, "sync_files", sync_files)
    log.roll(NOW_MS)
    assert len(synced) == 4, "the segment, its indexes and the snapshot: one call for all"
    assert log.failure is not None and "Input/output error" in log.failure
    assert log.flusher.recovery_point == 0
    assert watch.failed == {tmp_path: "Input/output error (flights-0/00000000000000000000.log)"}
    path = tmp_path / "flights-0" / "00000000000000000000.log"
    assert f"[Errno 5] Input/output error: '{path}'; the partition refuses appends" in caplog.text
    assert str(tmp_path) not in log.failure, "clients are told, too"


def test_each_failed_sync_names_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class FailingFile(files.DiskFile):
        """A file whose content cannot be synced."""

        def sync(self) -> None:
            raise OSError(errno.EIO, "Input/output error")

    class FailingFiles(LocalFiles):
        """A disk of such files."""

        def open_readonly(self, path: PathText) -> FailingFile:
            return FailingFile(path, os.O_RDONLY)

        def open(self, path: PathText, *, create: bool = False) -> FailingFile:
            return FailingFile(path, os.O_RDWR | os.O_CREAT)

        def open_new(self, path: PathText) -> FailingFile:
            return FailingFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    watched = WatchedFiles(FailingFiles(), DirectoryWatch(LocalFiles(), [tmp_path]))
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=f"'{tmp_path / 'file'}'"):
        watched.open_readonly(tmp_path / "file").sync()
    log = open_log(tmp_path / "flights-0", files=watched)
    append(log, b"a")
    append(log, b"b")
    with pytest.raises(StorageError):
        truncation.truncate_to(log, 1, NOW_MS)
    assert log.failure == "flights-0 could not be truncated: Input/output error"
    path = tmp_path / "flights-0" / "00000000000000000000.log"
    assert f"flights-0 could not be truncated: [Errno 5] Input/output error: '{path}'" in caplog.text


def test_open_files_that_are_not_all_of_the_real_disk_are_synced_one_by_one(tmp_path: Path) -> None:
    class Other(files.DiskFile):
        """A file with a way of its own to sync."""

        def sync(self) -> None:
            synced.append(self.fd)

    synced: list[int] = []
    opened = [Other(tmp_path / "other", os.O_RDWR | os.O_CREAT), LocalFiles().open(tmp_path / "file", create=True)]
    sync_open(opened)
    assert synced == [opened[0].fd]
    sync_open([])
