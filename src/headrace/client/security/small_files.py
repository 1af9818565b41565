"""Reads files of options and secrets. Errors name the file and never have its content."""

from pathlib import Path
from typing import Final

from headrace.errors import InvalidConfig

FILE_BYTES_MAX: Final = 1 << 20
"""The largest file of options or secrets that is read."""


def read_small_file(name: str, path: Path) -> bytes:
    """The content of a file of settings or secrets. Raises `InvalidConfig`, which names the option `name`."""
    try:
        if not path.is_file():
            raise InvalidConfig(
                f"{name}: {path} is not a file" if path.exists() else f"{name}: there is no file {path}"
            )
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidConfig(f"{name}: {path} cannot be read: {error.strerror}") from error
    if len(data) > FILE_BYTES_MAX:
        raise InvalidConfig(f"{name}: {path} has more than {FILE_BYTES_MAX} bytes")
    return data


def read_properties_file(name: str, path: Path) -> dict[str, str]:
    """The options of a file in Java's properties format. Raises `InvalidConfig`, which names the option `name`."""
    from headrace.config.properties_file import decode_properties  # imports the settings of brokers

    return decode_properties(read_small_file(name, path))
