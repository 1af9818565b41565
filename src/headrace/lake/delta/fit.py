"""Whether files with some columns can go into a table with other columns. Pure.

A file may lack columns, and fields of nested ones: readers take them for null. A table may lack them too, if they are
added first. Types must be the same: tables of other types for one column would be unreadable. A table may be given a
wider type of number first (`lake.widening`).
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

_WIDER = {("integer", "long"), ("integer", "double"), ("long", "double"), ("float", "double")}


class Fit(IntEnum):
    """How the columns of files and those of a table go together; the greater the worse."""

    FITS = 0
    LACKS_COLUMNS = 1
    """The table has not all of them yet, at some depth."""
    WIDENS = 2
    """A column has a narrower type of number in the table."""
    CLASHES = 3
    """A column has another type in the table, or its name there differs only by case."""


def fit(table: Any, files: Any) -> Fit:
    """How the Spark type of files fits that of a table; both as JSON."""
    if isinstance(table, dict) and isinstance(files, dict) and table["type"] == files["type"]:
        match table["type"]:
            case "struct":
                return _struct(table["fields"], files["fields"])
            case "array":
                return fit(table["elementType"], files["elementType"])
    if table == files:
        return Fit.FITS
    return Fit.WIDENS if isinstance(files, str) and isinstance(table, str) and (table, files) in _WIDER else Fit.CLASHES


def widest(table: Any, files: Any) -> Any:
    """The Spark type of a table, with the wider types that files have; the two fit."""
    if isinstance(table, dict) and isinstance(files, dict) and table["type"] == files["type"]:
        if table["type"] == "struct":
            theirs = {field["name"]: field["type"] for field in files["fields"]}
            fields = [
                {**field, "type": widest(field["type"], theirs.get(field["name"], field["type"]))}
                for field in table["fields"]
            ]
            return {**table, "fields": fields}
        if table["type"] == "array":
            return {**table, "elementType": widest(table["elementType"], files["elementType"])}
    return files if isinstance(table, str) and (table, files) in _WIDER else table


def _struct(table: Sequence[Mapping[str, Any]], files: Sequence[Mapping[str, Any]]) -> Fit:
    theirs = {field["name"]: field["type"] for field in table}
    missing = [field["name"] for field in files if field["name"] not in theirs]
    if {name.lower() for name in missing} & {name.lower() for name in theirs}:
        return Fit.CLASHES
    found = [fit(theirs[field["name"]], field["type"]) for field in files if field["name"] in theirs]
    return max([*found, Fit.LACKS_COLUMNS if missing else Fit.FITS])
