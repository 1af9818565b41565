"""The definition of a topic's lake table, which is the topic's setting `headrace.lake`: a JSON object.

    {"version": 1, "table": "s3://lake/orders", "format": "delta", "values": "json", "schema": {...}, "headers": false,
     "job": "load", "data_loss": "stop"}

    format   delta; iceberg: Iceberg's metadata of the same files, too
    values   raw: keys and values are bytes. json: values are JSON objects, their fields are columns
             registry: values have a schema of a registry, whose fields are columns
    registry the registry's address, without secrets
    schema   of json: the columns as Spark writes a schema; null: found from the values
    partition_by  month, day or hour of the records' time, bucket:N of their keys, field:NAME; null: no partitions
    catalog  of iceberg: the catalog's address, without secrets; null: a file beside the table
    job      the name of the progress in the table; that of the load job by default, so that either continues the other

Brokers check it and keep it; they do nothing else with it. Other keys are refused: they would be a newer program's.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

VERSION: Final = 1
CHARS_MAX: Final = 65_536
FORMATS: Final = ("delta", "iceberg")
VALUES: Final = ("raw", "json", "registry")
PARTITIONS: Final = re.compile(
    r"month|day|hour|bucket:([1-9][0-9]{0,2}|10[01][0-9]|102[0-4])|field:[^ ,;{}()=.`\x00-\x1f\x7f]+"
)
DATA_LOSS: Final = ("stop", "record")


@dataclass(frozen=True, slots=True)
class LakeDefinition:
    """A topic's lake table."""

    table: str
    format: str = "delta"
    values: str = "raw"
    schema: Mapping[str, object] | None = field(default=None, hash=False)
    headers: bool = False
    job: str = "load"
    data_loss: str = "stop"
    registry: str | None = None
    partition_by: str | None = None
    catalog: str | None = None

    def encoded(self) -> str:
        """The text of the setting."""
        return json.dumps({"version": VERSION, **asdict(self)}, separators=(",", ":"))


def decode_definition(text: str) -> LakeDefinition:
    """The definition in the text of the setting. Raises ValueError, which says what is wrong."""
    if len(text) > CHARS_MAX:
        raise ValueError(f"a definition has {len(text)} characters, at most {CHARS_MAX}")
    try:
        given = json.loads(text)
    except RecursionError:
        raise ValueError("a definition is nested too deeply") from None
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ValueError("a definition is a JSON object, which `headrace lake add` writes")
    if given.pop("version", None) != VERSION:
        raise ValueError(f"a definition has the version {VERSION}")
    unknown = sorted(given.keys() - set(LakeDefinition.__dataclass_fields__))
    if unknown:
        raise ValueError(f"a definition has no {', '.join(unknown)!r:.200}")
    table = given.get("table")
    if not isinstance(table, str) or not table.strip():
        raise ValueError("a definition has a table: a path or a URI")
    _one_of(given, "format", FORMATS)
    _one_of(given, "values", VALUES)
    _one_of(given, "data_loss", DATA_LOSS)
    schema = given.get("schema")
    if schema is not None and (not isinstance(schema, dict) or schema.get("type") != "struct"):
        raise ValueError("the schema of a definition is a JSON object as Spark writes it: {'type':'struct','fields':…}")
    if (given.get("values") == "registry") != isinstance(given.get("registry"), str) or "@" in (
        given.get("registry") or ""
    ):
        raise ValueError("a definition has the address of a registry, without a password, if values is registry")
    catalog = given.get("catalog")
    if catalog is not None and (not isinstance(catalog, str) or "@" in catalog or given.get("format") != "iceberg"):
        raise ValueError("in a definition catalog is the address of an Iceberg catalog, without a password")
    partition_by = given.get("partition_by")
    if partition_by is not None and not (isinstance(partition_by, str) and PARTITIONS.fullmatch(partition_by)):
        raise ValueError("in a definition partition_by is month, day, hour, bucket:N (1 to 1024) or field:NAME")
    if type(given.get("headers", False)) is not bool or not isinstance(given.get("job", ""), str):
        raise ValueError("in a definition headers is true or false, and job is a name")
    return LakeDefinition(**given)


def check_definition(text: str) -> None:
    """Raises ValueError if the text is neither empty nor a definition."""
    if text:
        decode_definition(text)


def _one_of(given: Mapping[str, object], key: str, choices: tuple[str, ...]) -> None:
    if key in given and given[key] not in choices:
        raise ValueError(f"in a definition {key} is {' or '.join(choices)}, not {given[key]!r:.100}")
