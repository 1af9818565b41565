"""The build backend: setuptools, and a C compiler from PyPI where the machine has none.

The kernel (`headrace.records.format2.kernel`) is Python that Cython compiles. A compiler is looked for in this order:

    $CC, cc, gcc, clang (cl on Windows)     what setuptools would take anyway
    ziglang                                 a C compiler as a wheel, asked for only when the first line finds none

Neither is required: when nothing compiles, setup.py's optional extension leaves a warning, the package installs, and
the kernel runs as the plain Python that it also is.
"""

import os
import shlex
import shutil
import sys

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = dict[str, str | list[str] | None] | None

_COMPILERS = ("cc", "gcc", "clang", "cl")


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What setuptools asks for, and ziglang where no C compiler is on PATH."""
    requirements: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    return requirements + _compiler_requirement()


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """As for a wheel: an editable install compiles the kernel in place."""
    requirements: list[str] = build_meta.get_requires_for_build_editable(config_settings)
    return requirements + _compiler_requirement()


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build a wheel with whatever compiler was found."""
    _use_zig_where_nothing_else_is()
    wheel: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return wheel


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build an editable wheel with whatever compiler was found."""
    _use_zig_where_nothing_else_is()
    wheel: str = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    return wheel


def _has_compiler() -> bool:
    return bool(os.environ.get("CC")) or any(shutil.which(name) for name in _COMPILERS)


def _compiler_requirement() -> list[str]:
    return [] if _has_compiler() else ["ziglang"]


def _use_zig_where_nothing_else_is() -> None:
    if _has_compiler():
        return
    # zig compiles for this very processor unless told otherwise; a cached wheel may travel to another machine.
    os.environ["CC"] = f"{shlex.quote(sys.executable)} -m ziglang cc -mcpu=baseline"
