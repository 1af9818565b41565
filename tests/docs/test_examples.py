"""The examples in the README, the tutorial and the page about Spark run as they are printed.

Blocks of `sh` and of `python` are run in the order of the page, in one empty directory, a process each. A comment above
a block says what is special about it:

    <!-- started by the test -->    it serves: it runs beside the others, until the page ends
    <!-- file NAME -->              it is not run but written to a file
    <!-- prints -->                 a `text` block: what the block before it prints; `…` stands for anything
    <!-- not run: REASON -->        only read

127.0.0.1:9092 becomes the address of the broker that the page started, on a port that is free.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import schema_registry
from tests.harness import child_environment, stop_process

ROOT = Path(__file__).parents[2]
ADDRESS = "127.0.0.1:9092"
REGISTRY = "http://127.0.0.1:8081"
BLOCK = re.compile(r"(?:<!-- (?P<note>[^\n]*?) -->\n)?```(?P<language>sh|python|text)\n(?P<code>.*?)```", re.DOTALL)
BLOCK_SECONDS = 600


class Example(NamedTuple):
    """One fenced block with what is said of it; `prints` is None where the page does not say."""

    language: str
    code: str
    note: str
    prints: str | None = None


def examples(page: str) -> list[Example]:
    """The examples of a page that are to be run, or written to a file."""
    found: list[Example] = []
    for each in BLOCK.finditer((ROOT / page).read_text()):
        note = each["note"] or ""
        if note == "prints":
            found[-1] = found[-1]._replace(prints=each["code"])
        elif each["language"] != "text":
            found.append(Example(each["language"], each["code"], note))
    return [each for each in found if not each.note.startswith("not run: ")]


def run_page(page: str, directory: Path, registry: str = REGISTRY) -> int:
    """Runs a page's examples; how many there were. `registry` is where a schema registry answers."""
    shown = [each._replace(code=each.code.replace(REGISTRY, registry)) for each in examples(page)]
    [place] = [number for number, each in enumerate(shown) if each.note == "started by the test"]
    before, served, others = shown[:place], shown[place], shown[place + 1 :]
    for example in before:  # what the broker needs
        if example.note.startswith("file "):
            (directory / example.note.removeprefix("file ")).write_text(example.code.replace(ADDRESS, "127.0.0.1:0"))
        else:
            run(["bash", "-euo", "pipefail", "-c", example.code], directory, "")
    with serving(served, directory) as bootstrap:
        imports = ""
        for example in others:
            code = example.code.replace(ADDRESS, bootstrap)
            if example.note.startswith("file "):
                (directory / example.note.removeprefix("file ")).write_text(code)
                continue
            if example.language == "python":
                output = run([sys.executable, "-c", imports + code], directory, bootstrap)
                imports += "".join(f"{line}\n" for line in code.splitlines() if line.startswith(("import ", "from ")))
            else:
                output = run(["bash", "-euo", "pipefail", "-c", code], directory, bootstrap)
            if example.prints is not None:
                check_output(example, output, bootstrap)
    return len(before) + len(others)


@contextmanager
def serving(example: Example, directory: Path) -> Iterator[str]:
    """The page's own broker while the page runs; its address. Its groups do not wait for further members, which saves
    three seconds at each example with a group."""
    code = example.code.replace(ADDRESS, "127.0.0.1:0").rstrip()
    command = ["bash", "-c", f"exec {code} --set group.initial.rebalance.delay.ms=0"]
    process = subprocess.Popen(
        command, cwd=directory, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        word, _, bootstrap = process.stdout.readline().decode().strip().partition(" ")
        assert word == "ready"
        yield bootstrap
    finally:
        status = stop_process(process)
        process.stdout.close()
    assert status == 0


def run(command: list[str], directory: Path, bootstrap: str) -> str:
    """One example, which must end with status 0; what it printed."""
    done = subprocess.run(
        command, cwd=directory, env={**environment(), "HEADRACE_BOOTSTRAP": bootstrap}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=BLOCK_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environment() -> dict[str, str]:
    """Of a terminal in which the environment of the tests is active."""
    base = child_environment()
    return {**base, "PATH": f"{Path(sys.executable).parent}:{base['PATH']}"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's own home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def check_output(example: Example, output: str, bootstrap: str) -> None:
    """What an example printed must be what the page says, but for the `…` in it."""
    assert example.prints is not None
    parts = example.prints.strip().replace(ADDRESS, bootstrap).split("…")
    pattern = ".*".join(map(re.escape, parts))
    assert re.fullmatch(pattern, output.strip(), re.DOTALL), f"{example.code}\nprints\n{output}\nnot\n{example.prints}"


PAGES = ["README.md", "docs/tutorial.md", "docs/spark.md", "docs/quotas.md"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(tmp_path: Path, page: str) -> None:
    assert run_page(page, tmp_path) > 0


@pytest.mark.slow
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "page",
    [
        "docs/client.md",
        "docs/coming-from.md",
        "docs/groups.md",
        "docs/security.md",
        "docs/instances.md",
        "docs/lake.md",
        "docs/workers.md",
    ],
)
def test_the_examples_without_spark_run(tmp_path: Path, page: str) -> None:
    assert run_page(page, tmp_path) > 0


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_the_examples_with_a_schema_registry_run(tmp_path: Path) -> None:
    with schema_registry.serving() as (url, _):
        assert run_page("docs/serializers.md", tmp_path, url) > 0


def test_the_tutorial_shows_what_its_examples_print() -> None:
    silent = [each for each in examples("docs/tutorial.md") if each.prints is None and not each.note]
    assert silent == []
