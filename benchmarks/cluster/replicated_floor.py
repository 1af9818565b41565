"""The floor of replicated produces: `replicated_floor.c`, compiled and started as three processes on loopback.

with ReplicatedFloor(directory) as floor:
    floor.ports; floor.bootstrap; floor.processes; floor.logs(0)
"""

import platform
import shutil
import subprocess
from pathlib import Path
from typing import Self

from tests.harness import free_ports, stop_process

SOURCE = Path(__file__).with_suffix(".c")
NODES = 3
WARM_S = 5.0
"""Of load before it is measured, at most: it has no code that is compiled while it runs."""


def missing_tools() -> str | None:
    """Why the floor cannot run on this machine; None when it can."""
    if platform.machine() != "x86_64":
        return "the floor needs x86-64, whose instructions make its checksums"
    return None if shutil.which("cc") else "the floor needs a C compiler"


class ReplicatedFloor:
    """Three processes, each of which leads the partition of its number, and follows the others, of any topic."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = free_ports(NODES)
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def bootstrap(self) -> str:
        """All addresses."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        program = self.directory / "replicated_floor"
        command = ["cc", "-O3", "-msse4.2", "-mpclmul", "-o", str(program), str(SOURCE)]
        subprocess.run(command, check=True)
        try:
            for number in range(NODES):
                command = [str(program), str(number), *map(str, self.ports), str(self.directory)]
                self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE))
            for process in self.processes:
                assert process.stdout is not None
                if process.stdout.readline() != b"ready\n":
                    raise RuntimeError("the floor did not start")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            stop_process(process)

    def logs(self, partition: int) -> list[Path]:
        """The files of a partition's replicas, one of each process."""
        return [self.directory / f"{number}-of-{partition}.log" for number in range(NODES)]
