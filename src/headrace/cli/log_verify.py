"""`headrace log verify|repair|du`: checks and repairs log files, and shows their sizes.

headrace log verify /var/headrace                    checks every batch of every partition; exit code 1 on damage
headrace log verify /var/headrace/flights-0 --json
headrace log repair /var/headrace/flights-0          lists what it would cut out, and asks first
headrace log du /var/headrace
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.output import Json, complain, print_json, print_table
from headrace.cli.shared import AsJson, DryRun, UsageProblem
from headrace.log.directories.data_directory import LOCK, DataDirectoryRefused
from headrace.log.filenames import LOG, is_segment_file
from headrace.log.files import LocalFiles
from headrace.offline import repair as repairs
from headrace.offline.usage import DiskUsage, usage_of
from headrace.offline.verify import BadIndex, CheckedSegment, Damage, Finding, Leftover, partition_directories
from headrace.offline.verify import verify as findings_of
from headrace.printable import printable

Deep = Annotated[bool, typer.Option("--deep", help="Also decompress every batch and check its records.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Repair without asking for confirmation.")]


def verify(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR|FILE...")], deep: Deep = False, json: AsJson = False
) -> int:
    """Check every batch and index; exit code 1 if one is damaged. The broker may be running."""
    damaged = 0
    for path in paths:
        seen = _Seen()
        running = _is_running(path)
        for finding in _findings(path, deep):
            is_tail = running and isinstance(finding, Damage) and finding.last_offset is None
            damaged += isinstance(finding, Damage) and not is_tail
            damaged += isinstance(finding, BadIndex) and not running  # a running broker's indexes lag behind
            seen.count(finding)
            if json:
                print_json({**_as_json(finding), **({"being_written": True} if is_tail else {})})
            elif not isinstance(finding, CheckedSegment):
                print(_line(finding) + (" (a running broker writes to this segment)" if is_tail else ""))
        if json:
            print_json({"kind": "total", "path": str(path), **seen.as_json()})
        else:
            print(f"{printable(str(path))}: {seen}")
    return 1 if damaged else 0


def repair(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR|FILE...")],
    save: Annotated[
        Path,
        typer.Option("--save", metavar="DIR", help="The directory that a copy of the removed bytes is written to."),
    ] = Path("headrace-cut"),
    deep: Deep = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> int:
    """Remove damaged parts from segments and rebuild indexes. Prints the loss and asks first. The broker must be
    stopped."""
    with ExitStack() as stack:
        for directory in {_data_directory(path) for path in paths}:
            lock = repairs.lock(LocalFiles(), directory)
            if lock is not None:
                stack.callback(lock.release)
        planned = [each for path in paths for each in repairs.plan(_findings(path, deep))]
        for each in planned:
            _show([*each.damages, *each.indexes], json)
        if not planned or dry_run:
            if not json:
                print("nothing was changed" if planned else "found no damage")
            return 0
        cut_bytes = sum(each.bytes_lost for each in planned)
        question = f"Cut out {cut_bytes} bytes, after copying them to {save}, and rebuild the indexes?"
        if not yes and not typer.confirm(question, err=True):
            complain("nothing was changed")
            return 1
        for each in planned:
            for saved in repairs.apply(LocalFiles(), each, save):
                print_json({"kind": "saved", "file": str(saved)}) if json else print(f"saved {printable(str(saved))}")
    if not json:
        print(f"{len(planned)} {'file was' if len(planned) == 1 else 'files were'} repaired")
    return 0


def _show(findings: Sequence[Finding], json: bool) -> None:
    for finding in findings:
        print_json(_as_json(finding)) if json else print(_line(finding))


def du(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR...")],
    topics: Annotated[bool, typer.Option("--topics", help="Sum up partitions by topic.")] = False,
    json: AsJson = False,
) -> int:
    """Show the disk space of each partition, the largest first."""
    files = LocalFiles()
    usages: list[DiskUsage] = []
    for path in paths:
        usages += [usage_of(files, directory) for directory in partition_directories(path, files)]
    if topics:
        usages = _by_topic(usages)
    usages.sort(key=lambda each: -each.total_bytes)
    if json:
        for usage in usages:
            print_json({**usage._asdict(), "directory": str(usage.directory), "total_bytes": usage.total_bytes})
        return 0
    rows = [(u.name, u.total_bytes, u.log_bytes, u.index_bytes, u.other_bytes, u.segments) for u in usages]
    total = [sum(int(row[column]) for row in rows) for column in range(1, 6)]
    print_table(["", "bytes", "log", "indexes", "other", "segments"], [*rows, ("total", *total)])
    return 0


class _Seen:
    """The totals of one path."""

    def __init__(self) -> None:
        self.segments = self.batches = self.size_bytes = self.damages = self.damaged_bytes = self.bad_indexes = 0

    def count(self, finding: Finding) -> None:
        match finding:
            case CheckedSegment():
                self.segments += 1
                self.batches += finding.batches
                self.size_bytes += finding.size_bytes
            case Damage():
                self.damages += 1
                self.damaged_bytes += finding.size_bytes
            case BadIndex():
                self.bad_indexes += 1
            case Leftover():
                pass

    def as_json(self) -> dict[str, Json]:
        return dict(vars(self))

    def __str__(self) -> str:
        text = f"{self.batches} batches in {self.segments} segments, {self.size_bytes} bytes"
        if self.damages:
            text += f"; {self.damages} damaged parts of {self.damaged_bytes} bytes"
        if self.bad_indexes:
            text += f"; {self.bad_indexes} bad indexes"
        return text if self.damages or self.bad_indexes else text + ", all good"


def _findings(path: Path, deep: bool) -> list[Finding]:
    try:
        return list(findings_of(path, deep=deep))
    except ValueError as wrong:
        raise UsageProblem(str(wrong)) from wrong


def _as_json(finding: Finding) -> dict[str, Json]:
    match finding:
        case Damage():
            return {"kind": "damage", **finding._asdict(), "file": str(finding.file), "repair_loses": finding.loss}
        case BadIndex():
            return {"kind": "bad_index", **finding._asdict(), "file": str(finding.file), "repair_loses": "no record"}
        case Leftover():
            return {"kind": "leftover", "file": str(finding.file)}
        case CheckedSegment():
            row = finding._asdict()
            del row["good"]
            return {"kind": "segment", **row, "file": str(finding.file)}


def _line(finding: Finding) -> str:
    match finding:
        case Damage():
            return (
                f"{printable(str(finding.file))}: {finding.size_bytes} bytes from position {finding.position} are "
                f"damaged: {finding.reason}; repair would lose {finding.loss}"
            )
        case BadIndex():
            return f"{printable(str(finding.file))}: {finding.reason}; repair would rebuild it and lose no record"
        case Leftover():
            return (
                f"{printable(str(finding.file))}: left by an interrupted cleaning; the next start removes it or "
                "completes the cleaning"
            )
        case CheckedSegment():
            return f"{printable(str(finding.file))}: {finding.batches} batches"


def _data_directory(path: Path) -> Path:
    """The data directory, which has the lock, of a partition or a segment; otherwise the path itself."""
    path = path.absolute()
    if is_segment_file(path.name, LOG):
        return path.parent.parent
    is_partition = path.is_dir() and any(is_segment_file(each.name, LOG) for each in path.iterdir())
    return path.parent if is_partition else path


def _is_running(path: Path) -> bool:
    directory = _data_directory(path)
    if not (directory / LOCK).exists():
        return False
    try:
        lock = repairs.lock(LocalFiles(), directory)
    except DataDirectoryRefused:
        return True
    if lock is not None:
        lock.release()
    return False


def _by_topic(usages: list[DiskUsage]) -> list[DiskUsage]:
    found: dict[str, DiskUsage] = {}
    for usage in usages:
        topic = usage.name.rpartition("-")[0]
        before = found.get(topic, DiskUsage(topic, usage.directory.parent, 0, 0, 0, 0))
        found[topic] = DiskUsage(
            topic,
            before.directory,
            before.log_bytes + usage.log_bytes,
            before.index_bytes + usage.index_bytes,
            before.other_bytes + usage.other_bytes,
            before.segments + usage.segments,
        )
    return list(found.values())
