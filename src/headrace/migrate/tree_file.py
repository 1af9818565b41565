"""The JSON file of a metadata tree, for `headrace migrate save-tree` and `load-tree`.

    {"format": "headrace tree", "version": 1, "nodes": [
    {"path": "/cluster/id", "data": "{\\"version\\":\\"1\\",\\"id\\":\\"0sjTqGE0QfmGgaQnlg3lPg\\"}"},
    {"path": "/x", "data_base64": "//8="}                                     a value that is no UTF-8
    ]}

Parents come before their children. Ephemeral nodes are never in it.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path

from headrace.log.files import Files
from headrace.metastore.store import BadPath, check_path
from headrace.migrate.nodes import Nodes
from headrace.migrate.refusal import MigrationRefused

FORMAT = "headrace tree"
VERSION = 1


def write_tree(files: Files, path: Path, nodes: Mapping[str, bytes]) -> None:
    """Write a tree, synced. Raises OSError."""
    head = json.dumps({"format": FORMAT, "version": VERSION})[:-1]
    rows = ",\n".join(json.dumps(_row(each, nodes[each]), ensure_ascii=False) for each in sorted(nodes))
    files.replace(path, f'{head}, "nodes": [\n{rows}\n]}}\n'.encode())


def read_tree(files: Files, path: Path) -> Nodes:
    """Read a tree. Raises OSError, and MigrationRefused for a file that is damaged or not a tree."""
    try:
        found = json.loads(files.read(path))
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError('it does not begin with {"format": "headrace tree"')
        if found.get("version") != VERSION:
            raise ValueError(f"its version is {found.get('version')}, and this program knows {VERSION}")
        return dict(_node(row) for row in found["nodes"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MigrationRefused(f"{path} is not a readable tree file: {error!s}") from None


def _row(path: str, data: bytes) -> dict[str, str]:
    try:
        return {"path": path, "data": data.decode()}
    except UnicodeDecodeError:
        return {"path": path, "data_base64": b64encode(data).decode()}


def _node(row: dict[str, str]) -> tuple[str, bytes]:
    path = row["path"]
    try:
        check_path(path)
    except BadPath:
        raise ValueError(f"{path!r} is not the path of a node") from None
    return path, row["data"].encode() if "data" in row else b64decode(row["data_base64"], validate=True)
