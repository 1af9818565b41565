"""SPARK_HOME of a local session, as links to the installed pyspark without its zip file.

Spark has its Python processes import pyspark from SPARK_HOME/python/lib/pyspark.zip, if there is one. The file has
source and no bytecode, so each process compiles what it imports, for a second, and the first read of a Python data
source starts five of them. Without the file they import the installed package, which is the same.
"""

import os
import site
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from headrace.spark.java import writable_bases

_FOLDERS = ("bin", "conf", "data", "jars", "licenses", "sbin")


@contextmanager
def of_links() -> Iterator[None]:
    """Sets SPARK_HOME while a JVM starts, unless it is set."""
    home = None if "SPARK_HOME" in os.environ else _home(os.environ)
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        os.environ.pop("SPARK_HOME", None)


def _home(environ: Mapping[str, str]) -> Path | None:
    """A directory of links; None where Spark's Python processes may not find the packages of this one."""
    installed = _place_of("pyspark")
    if installed is None or _place_of("py4j") is None or not (installed / "jars").is_dir():
        return None
    name = f"spark-{sha256(str(installed).encode()).hexdigest()[:12]}"
    for base in writable_bases(environ):
        try:
            (base / name).mkdir(parents=True, exist_ok=True)
            for folder in _FOLDERS:
                if (installed / folder).is_dir():
                    _link(base / name / folder, installed / folder)
        except OSError:
            continue
        return base / name
    return None


def _link(link: Path, target: Path) -> None:
    """Links atomically: other sessions may do the same."""
    if link.is_symlink() and link.readlink() == target:
        return
    made = link.with_name(f"{link.name}.{os.getpid()}")
    made.symlink_to(target)
    made.replace(link)


def _place_of(package: str) -> Path | None:
    """The directory of a package that each process of this interpreter finds."""
    found = find_spec(package)
    if found is None or found.origin is None:
        return None
    place = Path(found.origin).parent
    known = {*site.getsitepackages(), site.getusersitepackages(), *map(sysconfig.get_path, ("purelib", "platlib"))}
    return place if str(place.parent) in known else None
