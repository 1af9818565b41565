"""No module imports itself in a circle, imports for type checking included.

The import contracts hold the layers, and leave type-only imports out; within a layer a cycle would pass them.
"""

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest


def cycle_in(imports: Mapping[str, Iterable[str]]) -> list[str] | None:
    """The modules of one cycle, the first one again at the end."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def imports_of(*packages: str) -> dict[str, set[str]]:
    graph = grimp.build_graph(*packages, exclude_type_checking_imports=False, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_no_module_imports_itself_in_a_circle() -> None:
    imports = imports_of("headrace", "pyspark_headrace")
    assert len(imports) > 300
    cycle = cycle_in(imports)
    assert cycle is None, f"import cycle: {' -> '.join(reversed(cycle))}; move what they share into a module below"


def test_finds_a_cycle_that_only_a_type_checking_import_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "two_modules"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "noun.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from two_modules import verb\n"
    )
    (package / "verb.py").write_text("import two_modules.noun\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert set(cycle_in(imports_of("two_modules")) or ()) == {"two_modules.noun", "two_modules.verb"}
