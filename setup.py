"""The compiled modules, each by Cython from the same file that runs as plain Python."""

import warnings

from setuptools import Extension, setup

COMPILED = (
    "headrace.records.kernel",
    "headrace.records.message_kernel",
    "headrace.records.rows",
    "headrace.protocol.plain_produce",
    "headrace.broker.inbound",
    "headrace.broker.outbound",
    "headrace.broker.connection",
    "headrace.log.compaction_kernel",
    "headrace.log.compaction_runs",
    "headrace.log.recovery_kernel",
)
"""Each says in its docstring why it is compiled, and has its C types in a .pxd of its name."""


def compiled_modules() -> list[Extension]:
    """The modules as C, or nothing where Cython is missing or refuses."""
    try:
        from Cython.Build import cythonize

        modules = cythonize(
            [Extension(name, [f"src/{name.replace('.', '/')}.py"], extra_compile_args=["-O3"]) for name in COMPILED],
            build_dir="build/cython",
        )
    except Exception as problem:  # whatever goes wrong, headrace still installs
        warnings.warn(f"nothing is compiled, records and requests will be slow: {problem}", stacklevel=1)
        return []
    for module in modules:
        module.optional = True  # a failed compilation is a warning: the module also runs uncompiled
    return modules


setup(ext_modules=compiled_modules())
