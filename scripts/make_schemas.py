"""Generates src/headrace/protocol/schemas from the message descriptions in Apache Kafka's jars.

    python scripts/make_schemas.py [--jars DIR] [--out DIR]

The script merges two releases, message by message and version by version: the last one with every old version and
the inter-broker requests of the ZooKeeper era, and the newest one. Maven fetches the jars, unless `--jars` names a
directory that has them. The script takes facts only: field names, types, version ranges, defaults and tags. Its output
has the notation that `headrace.protocol.codec.schema` documents. Finally, each merged message is projected on each of
its versions and compared with the release that defines the version. A difference is an error.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from headrace.protocol.apis import OWN_FROM
from headrace.protocol.codec import schema

OLDEST_COMPLETE, NEWEST = "3.9.1", "4.3.1"
ARTIFACTS = ("kafka-clients", "kafka-group-coordinator", "kafka-transaction-coordinator", "kafka-metadata")
ARTIFACTS_OF_NEWEST = ("kafka-share-coordinator",)  # published from 4.0 on
OUT = Path(schema.DIRECTORY)
SKIPPED = re.compile(r"(Request|Response)Header|Legacy.*|ListClientMetrics.*")  # headers.py; names that others cover

Json = dict[str, Any]


class Field(NamedTuple):
    """A field, as one release describes it."""

    type: str
    nullable: bool
    tag: int | None
    ignorable: bool
    default: str


Layout = dict[str, list[tuple[str, Field]]]
"""Struct name -> its fields in wire order, at one version; the message itself is the struct ''."""


class Release(NamedTuple):
    """The description of a message in one release."""

    kind: str
    api_key: int | None
    shared: set[str]
    layouts: dict[int, Layout]
    flexible_from: int | None


class Merged(NamedTuple):
    """A field of a merged message: its versions, and its properties in them."""

    name: str
    type: str
    default: str
    ignorable: bool
    tag: int | None
    versions: set[int]
    nullable: set[int]
    tagged: set[int]


def span(text: str | None, limit: int) -> range:
    """'3-5', '3', '3+' or 'none' as a range."""
    if text is None or text == "none":
        return range(0)
    low, _, high = text.partition("-")
    if low.endswith("+"):
        return range(int(low[:-1]), limit + 1)
    return range(int(low), int(high or low) + 1)


def snake(name: str) -> str:
    """KRaftVersionFeature -> kraft_version_feature."""
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower()


def default_of(field: Json) -> str:
    """The default of a field in the notation; '' for the default of its type."""
    value = str(field.get("default") or "")
    if value.startswith(("0x", "-0x")):
        value = str(int(value, 16))
    return "" if value in ("", "0", "false") or (value == "null" and field["type"] == "records") else value


def structs(message: Json) -> Iterator[tuple[str, list[Json]]]:
    """The structs of a message with their fields. The fields of the message itself are those of the struct ''."""

    def walk(name: str, fields: list[Json]) -> Iterator[tuple[str, list[Json]]]:
        yield name, fields
        for field in fields:
            if field.get("fields"):
                yield from walk(field["type"].removeprefix("[]"), field["fields"])

    yield from walk("", message.get("fields", []))
    for common in message.get("commonStructs", []):
        yield from walk(common["name"], common["fields"])


def project(message: Json, version: int, shift: int) -> Layout:
    """The fields of a message at one version."""
    out: Layout = {}
    limit = 1 << 15

    def has(text: str | None) -> bool:
        return version - shift in span(text, limit)

    for name, fields in structs(message):
        out[name] = [
            (
                snake(field["name"]),
                Field(
                    field["type"],
                    has(field.get("nullableVersions")),
                    int(field["tag"]) if "tag" in field and has(field["taggedVersions"]) else None,
                    bool(field.get("ignorable")),
                    default_of(field),
                ),
            )
            for field in fields
            if has(field.get("versions", field.get("taggedVersions")))
        ]
    return out


def read_release(message: Json) -> Release | None:
    """The description of a message; None if the release has no version of it."""
    valid = span(message["validVersions"], 1 << 15)
    if not valid:
        return None
    shift = message["apiKey"] if message["type"] == "coordinator-key" else 0  # a key's version is its record's type
    versions = range(valid.start + shift, valid.stop + shift)
    flexible = span(message.get("flexibleVersions"), 1 << 15)
    return Release(
        message["type"],
        message.get("apiKey"),
        {common["name"] for common in message.get("commonStructs", [])},
        {version: project(message, version, shift) for version in versions},
        flexible.start + shift if flexible else None,
    )


def unite(old: Release | None, new: Release | None) -> Release:
    """The versions of both releases. If both have a version, they must agree, and the newer release is used."""
    if old is None or new is None:
        present = new or old
        assert present is not None
        return present
    for version in old.layouts.keys() & new.layouts.keys():
        for name in old.layouts[version].keys() & new.layouts[version].keys():
            ours, theirs = ([(n, f.type, f.nullable, f.tag) for n, f in r.layouts[version][name]] for r in (old, new))
            if ours != theirs:
                print(f"  note: v{version} {name or '(top)'}: {ours} became {theirs}", file=sys.stderr)
    return Release(
        new.kind,
        new.api_key if new.api_key is not None else old.api_key,
        old.shared | new.shared,
        old.layouts | new.layouts,
        new.flexible_from if new.flexible_from is not None else old.flexible_from,
    )


def order_of(rows: list[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """An order of all fields (name, type) that keeps the order of every version, by preference that of the newest."""
    order: list[tuple[str, str]] = []
    for row in reversed(rows):
        position = 0
        for item in row:
            if item in order:
                position = order.index(item) + 1
            else:
                order.insert(position, item)
                position += 1
    return order


def merge(release: Release) -> dict[str, list[Merged]]:
    """Struct name -> fields of all versions."""
    names = dict.fromkeys(name for _, layout in sorted(release.layouts.items()) for name in layout)
    out = {}
    for struct in names:
        per_version = {v: dict(layout.get(struct, [])) for v, layout in sorted(release.layouts.items())}
        rows = [[(name, field.type) for name, field in fields.items()] for fields in per_version.values()]
        merged = []
        for name, type_ in order_of(rows):
            named = {v: fields[name] for v, fields in per_version.items() if name in fields}
            seen = {v: field for v, field in named.items() if field.type == type_}
            last = seen[max(seen)]
            tags = {field.tag for field in seen.values() if field.tag is not None}
            assert len(tags) <= 1, (struct, name, tags)
            merged.append(
                Merged(
                    name,
                    type_,
                    last.default,
                    last.ignorable,
                    tags.pop() if tags else None,
                    set(seen),
                    {v for v, field in seen.items() if field.nullable},
                    {v for v, field in seen.items() if field.tag is not None},
                )
            )
        out[struct] = merged
    return out


def write_span(versions: set[int], newest: int) -> str:
    """A set of versions as '3', '3-5' or '3+' (up to the newest)."""
    low, high = min(versions), max(versions)
    assert versions == set(range(low, high + 1)), versions
    return f"{low}+" if high == newest else f"{low}-{high}" if high > low else str(low)


def write_field(field: Merged, parent: set[int], newest: int) -> str:
    """The line of a field in the notation, without indentation."""
    array = field.type.startswith("[]")
    text = f"[{field.type[2:]}]" if array else field.type
    versions = field.versions & parent
    if field.nullable & parent:
        text += "?" if field.nullable >= versions else "?" + write_span(field.nullable & parent, newest)
    words = [field.name, text]
    if versions != parent:
        words.append(write_span(versions, newest))
    if field.default:
        words.append(f"= {field.default}")
    if field.tag is not None:
        tagged = field.tagged & parent
        words.append(f"tag {field.tag}" + ("" if tagged == versions else "@" + write_span(tagged, newest)))
    if field.ignorable:
        words.append("ignorable")
    return " ".join(words)


def write_message(title: str, release: Release) -> list[str]:
    """The block of a message."""
    merged = merge(release)
    every = set(release.layouts)
    newest = max(every)
    head = f"{title} {min(every)}-{max(every)}"
    assert every == set(range(min(every), newest + 1)), title
    if release.flexible_from is not None and release.flexible_from <= newest:
        head += f" flexible {release.flexible_from}+"
    uses = [field.type.removeprefix("[]") for fields in merged.values() for field in fields]
    shared = [name for name in merged if name and (name in release.shared or uses.count(name) > 1)]
    lines = [head]

    def write(struct: str, depth: int, parent: set[int]) -> None:
        for field in merged[struct]:
            if not field.versions & parent:
                continue
            lines.append("  " * depth + write_field(field, parent, newest))
            inner = field.type.removeprefix("[]")
            if inner in merged and inner not in shared:
                write(inner, depth + 1, field.versions & parent)

    write("", 1, every)
    for name in shared:
        lines.append(f"  struct {name}")
        write(name, 2, every)
    return lines


def is_own(path: Path) -> bool:
    """Whether a schema is of one of headrace's own APIs, which no release describes."""
    return any((each.api_key or 0) >= OWN_FROM for each in schema.parse(path.read_text()))


def artifacts(version: str) -> tuple[str, ...]:
    """The jars of one release that describe messages."""
    return (*ARTIFACTS, *ARTIFACTS_OF_NEWEST) if version == NEWEST else ARTIFACTS


def fetch(directory: Path, version: str) -> None:
    """Fetches the jars of one release with Maven."""
    for artifact in artifacts(version):
        command = ["mvn", "-q", "dependency:copy", f"-Dartifact=org.apache.kafka:{artifact}:{version}"]
        subprocess.run([*command, f"-DoutputDirectory={directory}"], check=True)


def load(directory: Path, version: str) -> dict[str, Release | None]:
    """The messages of one release, by name."""
    out = {}
    for artifact in artifacts(version):
        with zipfile.ZipFile(directory / f"{artifact}-{version}.jar") as jar:
            for path in jar.namelist():
                if re.fullmatch(r"common/(message|metadata)/\w+\.json", path):
                    text = re.sub(r"(?m)(^|\s)//.*$", "", jar.read(path).decode())
                    message = json.loads(text)
                    if not SKIPPED.fullmatch(message["name"]):
                        out[message["name"]] = read_release(message)
    return out


def write_all(out: Path, messages: dict[str, Release]) -> None:
    """Writes one file per API and one per record."""
    for stale in out.rglob("*.schema"):
        if not is_own(stale):
            stale.unlink()
    (out / "records").mkdir(parents=True, exist_ok=True)
    for name, release in sorted(messages.items()):
        if release.kind in ("request", "response"):
            if name.endswith("Response"):
                continue
            api = name.removesuffix("Request")
            lines = [f"api {release.api_key} {api}", "", *write_message("request", release), ""]
            lines += write_message("response", messages[f"{api}Response"])
            path = out / f"{api}.schema"
        else:
            lines = write_message(f"record {name}", release)
            path = out / "records" / f"{name}.schema"
        path.write_text("\n".join(lines) + "\n")


def check(messages: dict[str, Release]) -> None:
    """Reads the files with the package, and compares each version with the release that defines it."""
    for name, release in messages.items():
        written = schema.load(name)
        for version, layout in release.layouts.items():
            reached = {""}
            for struct, fields in layout.items():
                ours = [field for field in written.structs.get(struct, []) if version in field.versions]
                found = [
                    (
                        field.name,
                        f"[]{field.type}" if field.is_array else field.type,
                        version in field.nullable,
                        field.tag if version in field.tagged else None,
                    )
                    for field in ours
                ]
                expected = [(field_name, field.type, field.nullable, field.tag) for field_name, field in fields]
                if struct in reached and found != expected:
                    raise SystemExit(f"{name} v{version} {struct}: {found} is not {expected}")
                reached |= {field.type for field in ours}


def main() -> None:
    """Fetches, merges, writes and checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jars", type=Path, help="a directory that holds the jars already")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        jars = options.jars or Path(scratch)
        if options.jars is None:
            fetch(jars, OLDEST_COMPLETE)
            fetch(jars, NEWEST)
        old, new = load(jars, OLDEST_COMPLETE), load(jars, NEWEST)
    united = {}
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) or new.get(name):
            united[name] = unite(old.get(name), new.get(name))
    write_all(options.out, united)
    if options.out == OUT:
        check(united)
    print(f"{len(united)} messages, {sum(len(release.layouts) for release in united.values())} versions")


if __name__ == "__main__":
    main()
