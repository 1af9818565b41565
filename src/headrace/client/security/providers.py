"""Values that are elsewhere: `${file:PATH:KEY}` and the other config providers of Apache Kafka.

    ${file:/run/secrets/kafka.properties:password}   a key of a properties file
    ${directory:/run/secrets:password}               the content of a file in a directory, as Kubernetes mounts secrets
    ${env:KAFKA_PASSWORD}                            an environment variable
    ${context:prod:sasl.jaas.config}                 an option of a context; headrace's own

A value may have several, with text around them. The text of an unknown provider stays as it is, as in Apache Kafka. A
file or a variable that is not there is an error, where Apache Kafka takes the reference itself for the password.
A value is resolved by the process that connects: in Spark by each worker, so that plans have the reference alone.
Source: KIP-297, KIP-421; Kafka's ConfigTransformer.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.client.security.contexts import read_context
from headrace.client.security.small_files import read_properties_file, read_small_file
from headrace.errors import InvalidConfig

_REFERENCE: Final = re.compile(r"\$\{(file|directory|env|context):(?:([^}]*?):)?([^}]*?)\}")


def resolve(name: str, value: str, environ: Mapping[str, str] = os.environ) -> str:
    """`value` with every reference replaced. Raises `InvalidConfig`, which names the option and the reference."""
    if "${" not in value:
        return value
    return _REFERENCE.sub(lambda found: _value_of(name, found, environ), value)


def _value_of(name: str, found: re.Match[str], environ: Mapping[str, str]) -> str:
    provider, path, key = found[1], found[2] or "", found[3]
    match provider:
        case "env":
            if key not in environ:
                raise InvalidConfig(f"{name}: the environment has no variable {key}")
            return environ[key]
        case "file":
            if not path:
                raise InvalidConfig(f"{name}: {found[0]} is not ${{file:PATH:KEY}}")
            properties = read_properties_file(name, Path(path).expanduser())
            if key not in properties:
                raise InvalidConfig(f"{name}: {path} has no line {key}=...")
            return properties[key]
        case "directory":
            if not path or not key or "/" in key or key in (".", ".."):
                raise InvalidConfig(f"{name}: {found[0]} is not ${{directory:PATH:FILE}}")
            return read_small_file(name, Path(path).expanduser() / key).decode(errors="replace").rstrip("\r\n")
        case _:
            try:
                value = read_context(path, environ).options.get(key)
            except InvalidConfig as wrong:
                raise InvalidConfig(f"{name}: {wrong.message}") from None
            if value is None:
                raise InvalidConfig(f"{name}: context {path} has no option {key}")
            if "${context:" in value:
                raise InvalidConfig(f"{name}: option {key} of context {path} refers to a context itself")
            return resolve(name, value, environ)
