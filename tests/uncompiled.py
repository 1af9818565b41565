"""The source of a compiled module, run as plain Python beside it."""

import importlib.util
from pathlib import Path
from types import ModuleType


def uncompiled(module: ModuleType) -> ModuleType:
    """The plain form of `module`; what it imports stays compiled."""
    assert module.__file__ is not None
    source = Path(module.__file__).with_name(f"{module.__name__.rpartition('.')[2]}.py")
    spec = importlib.util.spec_from_file_location(f"uncompiled_{source.stem}", source)
    assert spec is not None and spec.loader is not None
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    return plain
