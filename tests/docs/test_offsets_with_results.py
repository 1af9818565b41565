"""The consumers of docs/offsets-with-results.md: run as they are printed, and killed while records arrive."""

import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import Producer
from tests.docs.postgresql import missing, postgresql
from tests.docs.test_examples import ADDRESS, Example, check_output, environment, examples, run, serving

PAGE = "docs/offsets-with-results.md"
NEEDS = "needs PostgreSQL"
RECORDS = 3000
needs_postgresql = pytest.mark.skipif(missing() is not None, reason=missing() or "")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[str, list[Example]]]:
    """The page's broker with the page's records, its programs as files, and the rest of its examples."""
    served, fill, *rest = examples(PAGE)
    assert served.note == "started by the test" and fill.language == "python"
    with serving(served, tmp_path) as bootstrap:
        run([sys.executable, "-c", fill.code.replace(ADDRESS, bootstrap)], tmp_path, bootstrap)
        for example in rest:
            if example.note.startswith("file "):
                name = example.note.removeprefix("file ")
                (tmp_path / name).write_text(example.code.replace(ADDRESS, bootstrap))
        yield bootstrap, [each for each in rest if not each.note.startswith("file ")]


def run_examples(shown: list[Example], directory: Path, bootstrap: str) -> None:
    for example in shown:
        code = example.code.replace(ADDRESS, bootstrap)
        shell = ["bash", "-euo", "pipefail", "-c"]
        output = run([*(shell if example.language == "sh" else [sys.executable, "-c"]), code], directory, bootstrap)
        if example.prints is not None:
            check_output(example, output, bootstrap)


def test_the_examples_with_sqlite_run(page: tuple[str, list[Example]], tmp_path: Path) -> None:
    bootstrap, shown = page
    shown = [each for each in shown if each.note != NEEDS]
    assert len(shown) == 6
    run_examples(shown, tmp_path, bootstrap)


@needs_postgresql
def test_the_example_with_postgresql_runs(
    page: tuple[str, list[Example]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap, shown = page
    shown = [each for each in shown if each.note == NEEDS]
    assert len(shown) == 1
    with postgresql() as found:
        for name, value in found.items():
            monkeypatch.setenv(name, value)
        run_examples(shown, tmp_path, bootstrap)


def start(program: str, directory: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, program], cwd=directory, env=environment(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def kill_and_count(
    program: str,
    directory: Path,
    bootstrap: str,
    counted: Callable[[], int],
    kills: int = 6,
    without: int | None = None,
) -> None:
    """Kills the program while it works and records arrive, starts it again, and two of it at once at the end.

    `without`: a member whose views the program leaves out.
    """
    chance, stop = random.Random(16), threading.Event()
    sent = RECORDS

    def produce() -> None:
        nonlocal sent
        with Producer(bootstrap) as producer:
            while not stop.is_set():
                view = json.dumps({"member": sent % 10, "page": "/", "text": ""}).encode()
                producer.send("views", view, partition=sent % 3).result()
                sent += 1

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        while kills:
            process, before = start(program, directory), counted()
            deadline = time.monotonic() + 60
            while counted() == before and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(chance.random() * 0.05)  # somewhere in its work
            if process.poll() is None:
                process.kill()
                kills -= 1
            process.communicate()
            assert counted() <= sent
    finally:
        stop.set()
        thread.join()
    both = [start(program, directory) for _ in range(2)]
    said = [each.communicate()[1] for each in both]
    for process, errors in zip(both, said, strict=True):
        assert (
            process.returncode == 0 or b"another process" in errors or b"UNIQUE constraint failed: segments" in errors
        ), errors
    last = start(program, directory)
    assert (last.communicate()[1], last.returncode) == (b"", 0)
    assert counted() == sum(number % 10 != without for number in range(sent))


def asked(file: Path, question: str) -> int:
    """The number that a database answers with; 0 before it has its tables."""
    database = sqlite3.connect(file, timeout=60)
    try:
        return int(database.execute(question).fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        database.close()


VIEWS = "SELECT coalesce(sum(views), 0) FROM totals"


@pytest.mark.parametrize(
    ("program", "file", "question", "kills"),
    [
        ("totals_sqlite.py", "totals.sqlite", VIEWS, 6),
        ("search.py", "search.sqlite", "SELECT count(*) FROM pages", 3),  # each has to fill a segment
    ],
    ids=["totals", "search"],
)
def test_no_record_is_lost_or_counted_twice_in_sqlite(
    page: tuple[str, list[Example]], tmp_path: Path, program: str, file: str, question: str, kills: int
) -> None:
    kill_and_count(program, tmp_path, page[0], lambda: asked(tmp_path / file, question), kills)


def test_a_corrected_program_that_counts_again_is_killed_too(page: tuple[str, list[Example]], tmp_path: Path) -> None:
    bootstrap, shown = page
    run([sys.executable, "totals_sqlite.py"], tmp_path, bootstrap)
    assert asked(tmp_path / "totals.sqlite", VIEWS) == RECORDS
    [rewind] = [each.code for each in shown if "> corrected.py" in each.code]
    run(["bash", "-euo", "pipefail", "-c", rewind.partition("for seconds")[0]], tmp_path, bootstrap)
    assert asked(tmp_path / "totals.sqlite", VIEWS) == 0
    kill_and_count(
        "corrected.py", tmp_path, bootstrap, lambda: asked(tmp_path / "totals.sqlite", VIEWS), kills=3, without=3
    )


@needs_postgresql
def test_no_record_is_lost_or_counted_twice_in_postgresql(
    page: tuple[str, list[Example]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = "SELECT CASE WHEN to_regclass('totals') IS NULL THEN '0' ELSE 'yes' END"
    total = "SELECT coalesce(sum(views), 0) FROM totals"

    def ask(text: str) -> str:
        command = ["psql", "--tuples-only", "--no-align", "--command", text]
        return subprocess.run(command, env=os.environ, check=True, capture_output=True, text=True).stdout.strip()

    with postgresql() as found:
        for name, value in found.items():
            monkeypatch.setenv(name, value)
        kill_and_count(
            "totals_postgresql.py", tmp_path, page[0], lambda: int(ask(total)) if ask(question) == "yes" else 0
        )
