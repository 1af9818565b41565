"""What setup.py compiles is compiled, from the source that is there: or an edit of it would change nothing."""

import importlib
from pathlib import Path

import pytest

SOURCES = sorted(source for path in Path("src/headrace").rglob("*.pxd") if (source := path.with_suffix(".py")).exists())
"""A .pxd alone is C for others to include."""


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_the_compiled_module_is_as_new_as_its_source(source: Path) -> None:
    name = ".".join(source.relative_to("src").with_suffix("").parts)
    loaded = Path(importlib.import_module(name).__file__ or "")
    assert loaded.suffix in (".so", ".pyd"), f"{name} is not compiled: python setup.py build_ext --inplace"
    newest = max(source.stat().st_mtime, source.with_suffix(".pxd").stat().st_mtime)
    assert loaded.stat().st_mtime >= newest, f"{name} was edited: python setup.py build_ext --inplace"


def test_setup_compiles_what_has_c_types() -> None:
    assert sorted(_listed()) == [".".join(source.relative_to("src").with_suffix("").parts) for source in SOURCES]


def _listed() -> list[str]:
    """The names in setup.py, which cannot be imported: it builds."""
    return [
        line.strip(' ",') for line in Path("setup.py").read_text().splitlines() if line.startswith('    "headrace.')
    ]
