"""The compiled modules, each by Cython from the same file that runs as plain Python."""

import warnings

from setuptools import Extension, setup

COMPILED = (
    "headrace.records.format2.kernel",
    "headrace.records.legacy.message_kernel",
    "headrace.records.format2.rows",
    "headrace.protocol.plain_produce",
    "headrace.protocol.conversation.frames",
    "headrace.network.outbound",
    "headrace.network.connection",
    "headrace.log.cleaning.compaction_kernel",
    "headrace.log.cleaning.compaction_runs",
    "headrace.log.recovery.recovery_kernel",
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
