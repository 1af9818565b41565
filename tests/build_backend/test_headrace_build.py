"""The build backend asks for a C compiler from PyPI only where the machine has none."""

import importlib.util
import os
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

BACKEND = Path(__file__).parents[2] / "build_backend" / "headrace_build.py"


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The backend, on a machine without a compiler: an empty PATH and no CC."""
    monkeypatch.chdir(BACKEND.parents[1])
    spec = importlib.util.spec_from_file_location("headrace_build", BACKEND)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "")
    monkeypatch.setattr(module.build_meta, "get_requires_for_build_wheel", lambda settings: ["wheel-needs"])
    monkeypatch.setattr(module.build_meta, "get_requires_for_build_editable", lambda settings: ["editable-needs"])
    return module


def test_without_a_compiler_ziglang_is_asked_for(backend: ModuleType) -> None:
    assert backend.get_requires_for_build_wheel() == ["wheel-needs", "ziglang"]
    assert backend.get_requires_for_build_editable() == ["editable-needs", "ziglang"]


@pytest.mark.parametrize("name", ["cc", "gcc", "clang"])
def test_with_a_compiler_on_the_path_it_is_not(backend: ModuleType, tmp_path: Path, name: str) -> None:
    compiler = tmp_path / name
    compiler.touch(mode=0o755)
    assert backend.get_requires_for_build_wheel() == ["wheel-needs"]


def test_with_cc_set_it_is_not(backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "my-cc")
    assert backend.get_requires_for_build_editable() == ["editable-needs"]


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_a_build_without_a_compiler_uses_the_one_of_this_python(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    used: list[str] = []

    def build(*_: object) -> str:
        used.append(os.environ["CC"])
        return "a.whl"

    monkeypatch.setattr(backend.build_meta, f"build_{kind}", build)
    assert getattr(backend, f"build_{kind}")("directory") == "a.whl"
    assert shlex.split(used[0])[:4] == [sys.executable, "-m", "ziglang", "cc"]
