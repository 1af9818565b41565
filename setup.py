"""The one compiled module: `headrace.records.kernel`, by Cython from the same file that runs as plain Python."""

import warnings

from setuptools import Extension, setup

KERNEL = Extension(
    "headrace.records.kernel",
    ["src/headrace/records/kernel.py"],
    extra_compile_args=["-O3"],
)


def compiled_modules() -> list[Extension]:
    """The kernel as C, or nothing where Cython is missing or refuses."""
    try:
        from Cython.Build import cythonize

        modules = cythonize([KERNEL], build_dir="build/cython")
    except Exception as problem:  # whatever goes wrong, headrace still installs
        warnings.warn(f"headrace.records.kernel is not compiled, records will be slow: {problem}", stacklevel=1)
        return []
    for module in modules:
        module.optional = True  # a failed compilation is a warning: the module also runs uncompiled
    return modules


setup(ext_modules=compiled_modules())
