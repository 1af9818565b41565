"""The source of a compiled module, run as plain Python beside it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from headrace import octets


def uncompiled(module: ModuleType, *bases: ModuleType) -> ModuleType:
    """The plain form of `module`, on that of its `bases`, from below. What else it imports stays compiled, but for
    `headrace.octets`: compiled, its functions take pointers."""
    with pytest.MonkeyPatch.context() as patch:
        for each in (octets, *bases):
            patch.setitem(sys.modules, each.__name__, _plain(each))
        return _plain(module)


def _plain(module: ModuleType) -> ModuleType:
    assert module.__file__ is not None
    source = Path(module.__file__).with_name(f"{module.__name__.rpartition('.')[2]}.py")
    spec = importlib.util.spec_from_file_location(f"uncompiled_{source.stem}", source)
    assert spec is not None and spec.loader is not None
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    return plain
