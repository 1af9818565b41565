"""What users import from `headrace.client`, and what that costs those who import something else."""

import subprocess
import sys

import pytest

import headrace.client


@pytest.mark.parametrize("name", headrace.client.__all__)
def test_each_public_name_is_the_class_or_function_of_that_name(name: str) -> None:
    found = getattr(headrace.client, name)
    assert callable(found) and found.__name__ == name
    assert name in dir(headrace.client)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'headrace\.client' has no attribute 'Consumers'"):
        headrace.client.Consumers  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_imports_none_of_its_modules() -> None:
    code = "import sys, headrace.client; print(*(name for name in sys.modules if name.startswith('headrace')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(run.stdout.split()) == ["headrace", "headrace.client", "headrace.version"]
