"""The types of the client are complete: a type checker of a user infers nothing, and meets nothing unknown."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from tests import rotation

pytestmark = pytest.mark.slow

NODE = shutil.which("node")


def is_ours(name: str) -> bool:
    return name.startswith("headrace.") and not name.startswith("headrace.testing.pytest_plugin.")  # pytest's are not


@pytest.mark.skipif(NODE is None, reason="pyright runs on Node.js")
@pytest.mark.parametrize("package", rotation.in_turn("headrace.client", "headrace.testing"))
def test_every_public_name_of_the_package_has_a_known_type(package: str, tmp_path: Path) -> None:
    # Pyright takes what is near it for the program that it checks, and not for a library. So it gets a copy.
    library, elsewhere = tmp_path / "library", tmp_path / "elsewhere"
    shutil.copytree(Path(headrace.__file__).parent, library / "headrace", ignore=shutil.ignore_patterns("*.so", "*.c"))
    elsewhere.mkdir()
    path = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ["PATH"]]
    )  # Pyright asks this Python where its libraries are
    ran = subprocess.run(
        [sys.executable, "-m", "pyright", "--verifytypes", package, "--outputjson"],
        cwd=elsewhere,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(library), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
    )
    found = json.loads(ran.stdout)["typeCompleteness"]
    incomplete = [
        f"{symbol['name']}: {'; '.join(each['message'] for each in symbol['diagnostics'])}"
        for symbol in found["symbols"]
        if (not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]) and is_ours(symbol["name"])
    ]
    assert not incomplete, "\n".join(incomplete)
    assert found["exportedSymbolCounts"]["withKnownType"] > 50, "it looked at nothing"
