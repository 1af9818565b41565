"""A PostgreSQL server of its own, from Debian's packages, for tests that need one."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.eventually import eventually
from tests.harness import free_ports, stop_process

_HOMES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def missing() -> str | None:
    """Why there is none; None if there is."""
    if not _HOMES or shutil.which("psql") is None:
        return "needs PostgreSQL: apt-get install postgresql"
    if find_spec("psycopg") is None:
        return "needs psycopg: pip install 'psycopg[binary]'"
    if os.geteuid() == 0 and shutil.which("runuser") is None:
        return "needs runuser, since PostgreSQL does not run as root"
    return None


@contextmanager
def postgresql() -> Iterator[dict[str, str]]:
    """The environment by which its clients find a new server, which is gone afterwards."""
    programs = _HOMES[-1].parent
    is_root = os.geteuid() == 0
    as_user = ["runuser", "-u", "postgres", "--"] if is_root else []
    with TemporaryDirectory(prefix="postgresql-") as name:
        home = Path(name)
        if is_root:
            shutil.chown(home, "postgres")
        data, [port] = home / "data", free_ports(1)
        make = [programs / "initdb", "--pgdata", data, "--username", "postgres", "--auth", "trust", "--no-sync"]
        subprocess.run([*as_user, *map(str, make)], check=True, capture_output=True, cwd=home)
        serve = [programs / "postgres", "-D", data, "-k", home, "-h", "127.0.0.1", "-p", port]
        process = subprocess.Popen(
            [*as_user, *map(str, serve)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd=home,
        )  # fmt: skip
        environment = {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "postgres", "PGDATABASE": "postgres"}
        ask = ["psql", "--command", "SELECT 1"]
        try:
            eventually(
                lambda: subprocess.run(ask, env={**os.environ, **environment}, capture_output=True).returncode == 0,
                "PostgreSQL to answer",
            )
            yield environment
        finally:
            stop_process(process)
