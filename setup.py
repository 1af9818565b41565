"""The compiled modules, each by Cython from the same file that runs as plain Python."""

import multiprocessing
import os
import warnings
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PROCESSES = min(4, os.cpu_count() or 1)
"""Of Cython, which have to be forks, for another kind runs this file again; and of the C compiler. Each takes a quarter
of a gigabyte, and a container with little memory may see all cores of its host."""

COMPILED = (
    "headrace.octets",
    "headrace.records.format2.kernel",
    "headrace.records.legacy.message_kernel",
    "headrace.records.format2.rows",
    "headrace.records.format2.plain_batch",
    "headrace.protocol.plain_produce",
    "headrace.protocol.produce_places",
    "headrace.protocol.plain_fetch",
    "headrace.protocol.plain_groups",
    "headrace.protocol.follower_fetch",
    "headrace.protocol.conversation.frames",
    "headrace.protocol.conversation.fetch_session_client",
    "headrace.network.outbound",
    "headrace.network.receive_pass",
    "headrace.network.answer_order",
    "headrace.network.answer_buffer",
    "headrace.network.answer_sender",
    "headrace.network.late_answers",
    "headrace.network.connection",
    "headrace.network.peers.loan",
    "headrace.log.segment.index_columns",
    "headrace.log.segment.tail_cache",
    "headrace.log.disk_calls",
    "headrace.log.append_state",
    "headrace.log.plain_read",
    "headrace.replication.replica_offsets",
    "headrace.broker.metrics.traffic",
    "headrace.metadata.broker_epoch",
    "headrace.broker.partitions.local_replica",
    "headrace.broker.request.in_force",
    "headrace.broker.request.purgatory",
    "headrace.broker.produce.commit_queue",
    "headrace.broker.produce.waiting_answer",
    "headrace.broker.produce.produce_shortcut",
    "headrace.broker.fetch.fetch_sessions",
    "headrace.broker.fetch.waiting_fetch",
    "headrace.broker.fetch.plain_session",
    "headrace.broker.fetch.plain_fetch",
    "headrace.broker.fetch.plain_follow",
    "headrace.coordinators.groups.offset_batch",
    "headrace.coordinators.groups.consumer.steady",
    "headrace.broker.coordinator_host.plain_groups",
    "headrace.broker.replication.followed",
    "headrace.broker.replication.plain_fetches",
    "headrace.broker.request.shortcuts",
    "headrace.log.cleaning.compaction_kernel",
    "headrace.log.cleaning.compaction_runs",
    "headrace.log.recovery.recovery_kernel",
    "headrace.client.producer.accumulator",
    "headrace.client.producer.delivery",
    "headrace.client.producer.intake",
    "headrace.client.metrics.meters",
)
"""Each says in its docstring why it is compiled, and has its C types in a .pxd of its name."""

LOOPS = ("headrace.octets", "headrace.records.", "headrace.log.cleaning.", "headrace.log.recovery.")
"""What walks over many records in a loop is up to a third slower with -O2. The rest is no faster with -O3, and takes
1.3 times as long to compile, 1.6 times with -g as well."""

SANITIZER_FLAGS = ["-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize=alignment"]
"""With HEADRACE_SANITIZE set, as `make sanitize` does: each access beyond an object ends the process with a report."""


def _extension(name: str) -> Extension:
    path = f"src/{name.replace('.', '/')}.py"
    if os.environ.get("HEADRACE_SANITIZE"):
        return Extension(name, [path], extra_compile_args=SANITIZER_FLAGS, extra_link_args=SANITIZER_FLAGS)
    flags = ["-O3" if name.startswith(LOOPS) else "-O2", "-g0"]  # behind Python's own, which are often -O3 and -g
    return Extension(name, [path], extra_compile_args=flags)


def compiled_modules() -> list[Extension]:
    """The modules as C, or nothing where Cython is missing or refuses."""
    try:
        from Cython.Build import cythonize

        modules = cythonize(
            [_extension(name) for name in COMPILED],
            build_dir="build/cython",
            nthreads=PROCESSES if multiprocessing.get_start_method() == "fork" else 0,
        )
    except Exception as problem:  # whatever goes wrong, headrace still installs
        warnings.warn(f"nothing is compiled, records and requests will be slow: {problem}", stacklevel=1)
        return []
    for module in modules:
        module.optional = True  # a failed compilation is a warning: the module also runs uncompiled
    return modules


class AllOrNone(build_ext):
    """The compiled modules use each other's C types, and a part of them would not start: if one fails, none is kept."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or PROCESSES

    def run(self) -> None:
        super().run()
        paths = [Path(self.get_ext_fullpath(each.name)) for each in self.extensions]
        missing = [path.name for path in paths if not path.exists()]
        if missing:
            warnings.warn(f"nothing is compiled, records and requests will be slow: no {missing}", stacklevel=1)
            for path in paths:
                path.unlink(missing_ok=True)


setup(ext_modules=compiled_modules(), cmdclass={"build_ext": AllOrNone})
