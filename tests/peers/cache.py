"""Where tests keep what they download or build of other people's software: made once, by the first who needs it."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

BUILD_SECONDS = 900
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Maven takes half the processor time so: it ends before an optimising compiler pays."""


def peers_cache() -> Path:
    """`HEADRACE_PEERS_CACHE`, or `~/.cache/headrace-peers`."""
    return Path(os.environ.get("HEADRACE_PEERS_CACHE") or Path.home() / ".cache" / "headrace-peers")


def build_once(name: str, commands: Callable[[Path], Sequence[Sequence[str]]]) -> Path:
    """The directory `name` of the cache; `commands` fill it, if nobody did before, while others wait."""
    home = peers_cache() / name
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / ".complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            for command in commands(home):
                _run(command)
            (home / ".complete").touch()
    return home


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        env={**os.environ, "MAVEN_OPTS": os.environ.get("MAVEN_OPTS", QUICK_START)},
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
