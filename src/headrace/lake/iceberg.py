"""The Iceberg face of a lake table: Iceberg's metadata of the same Parquet files, after each commit.

    round ─▶ commit in the Delta log: rows and progress      exactly once is decided here
                     └─▶ publish: files and columns that differ ─▶ one commit in an Iceberg catalog

A snapshot of Iceberg has the files of one version of the Delta log, which it names (`headrace.delta-version`). So it
may be behind, after a kill or while the catalog is away, and is never torn: the next publication brings it to the
newest version, whatever lies between. Several processes may publish: the catalog refuses a commit on an older snapshot,
and a version is never followed by an older one. Iceberg's own files are in the folder `_iceberg` of the table, which
readers and vacuums of Delta leave alone.

Columns have the ids of Iceberg by their names, because the files have none (`schema.name-mapping.default`). Iceberg has
snapshots of the last quarter of an hour only; older versions of the table are in the Delta log. Partitions of the table
are no partitions of Iceberg's, which skips files by the bounds of all columns.
Source: Iceberg's specification, "Column Projection"; pyiceberg writes the metadata.
"""

import logging
import time
import warnings
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from headrace.client.serializers.errors import missing_library
from headrace.lake.delta.delta_table import LoadTable
from headrace.lake.delta.location import Location

log = logging.getLogger(__name__)
VERSION_KEY: Final = "headrace.delta-version"
NAMESPACE: Final = "headrace"
FOLDER: Final = "_iceberg"
KEPT: Final = timedelta(minutes=15)
_MAPPING: Final = "schema.name-mapping.default"
_CONFLICTS_MAX: Final = 20
_EXPIRE_EVERY: Final = 64
_PROPERTIES: Final = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "commit.retry.num-retries": "0",  # a retry of pyiceberg's would add the same files to what another has published
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


def catalog_properties(uri: str | None, location: Location) -> dict[str, str]:
    """The properties of a catalog: of an address, else of a SQLite file beside the metadata.

    Others, such as a token, are those of pyiceberg's environment for a catalog that is called `headrace`. Raises
    ValueError without an address, for a table that is not on a mounted file system.
    """
    if uri is not None:
        return {"type": "rest" if uri.startswith("http") else "sql", "uri": uri}
    if location.directory is None:
        raise ValueError(f"an Iceberg table at {location} needs --catalog URI: the address of a catalog")
    return {"type": "sql", "uri": f"sqlite:///{location.directory / FOLDER / 'catalog.db'}"}


class IcebergFace:
    """Publishes one table. Used by one thread."""

    def __init__(self, location: Location, catalog: str | None = None) -> None:
        """`catalog` is an address. Raises InvalidConfig without pyiceberg, and ValueError without a catalog."""
        _pyiceberg()
        self.identifier = (NAMESPACE, location.name)
        self._location = location
        self._properties = catalog_properties(catalog, location)
        self._catalog: Any = None
        self._published = 0

    def publish(self) -> int | None:
        """Bring Iceberg's table to the newest version of the Delta log; returns it, and None if there is no table.

        Raises what pyiceberg does if the catalog or the store is away.
        """
        for _ in range(_CONFLICTS_MAX):
            table = LoadTable.open(self._location)
            if table is None:
                return None
            try:
                self._to(table)
                return table.version
            except _pyiceberg().exceptions.CommitFailedException as conflict:
                log.info("somebody else published %s: %s", self._location, conflict)
                time.sleep(0.05)
        raise OSError(f"the Iceberg table of {self._location} was changed by others {_CONFLICTS_MAX} times in a row")

    @property
    def metadata(self) -> str | None:
        """Where Iceberg's newest metadata is, for readers without the catalog; None before the first publication."""
        catalog = self._open()
        if not catalog.table_exists(self.identifier):
            return None
        return str(catalog.load_table(self.identifier).metadata_location)

    def _open(self) -> Any:
        if self._catalog is None:
            if self._location.directory is not None:
                (self._location.directory / FOLDER).mkdir(parents=True, exist_ok=True)
            self._catalog = _pyiceberg().catalog.load_catalog(NAMESPACE, **self._properties)
            self._catalog.create_namespace_if_not_exists(NAMESPACE)
        return self._catalog

    def _to(self, table: LoadTable) -> None:
        """Publish a version, unless a newer one is."""
        columns = _optional(table.arrow_schema)
        found = self._open().create_table_if_not_exists(
            self.identifier,
            schema=columns,
            location=f"{str(self._location.uri).rstrip('/')}/{FOLDER}",
            properties=_PROPERTIES,
        )
        found.refresh()
        current = found.current_snapshot()
        if current is not None and int((current.summary or {}).get(VERSION_KEY) or 0) >= table.version:
            return
        wanted = {self._uri(one.path) for one in table.live_files}
        entries = [] if current is None else _entries(found, current)
        gone = [each for each in entries if each.file_path not in wanted]
        new = sorted(wanted - {each.file_path for each in entries})
        with found.transaction() as transaction, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _set_columns(transaction, columns)
            update = transaction.update_snapshot(snapshot_properties={VERSION_KEY: str(table.version)})
            files = _pyiceberg().io.pyarrow.parquet_files_to_data_files(found.io, transaction.table_metadata, iter(new))
            with update.overwrite() if gone else update.merge_append() as producer:
                for each in gone:
                    producer.delete_data_file(each)
                for each in files:
                    producer.append_data_file(each)
        self._published += 1
        if self._published % _EXPIRE_EVERY == 0:
            found.maintenance.expire_snapshots().older_than(datetime.now(UTC).replace(tzinfo=None) - KEPT).commit()

    def _uri(self, path: str) -> str:
        return path if "://" in path else f"{str(self._location.uri).rstrip('/')}/{path}"


def _entries(found: Any, snapshot: Any) -> list[Any]:
    """The data files of a snapshot."""
    manifests = snapshot.manifests(found.io)
    return [entry.data_file for one in manifests for entry in one.fetch_manifest_entry(found.io, discard_deleted=True)]


def _set_columns(transaction: Any, columns: pa.Schema) -> None:
    """Give the table these columns. For a wider type that Iceberg has no promotion to, a column is a new one of the
    same name: all files were written anew with it."""
    known = {field.name: field.type for field in transaction.table_metadata.schema().as_arrow()}
    replaced = [
        field.name for field in columns if field.name in known and _is_unpromotable(known[field.name], field.type)
    ]
    if replaced:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for name in replaced:
                update.delete_column(name)
    with transaction.update_schema() as update:
        update.union_by_name(columns)
    mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
    if transaction.table_metadata.properties.get(_MAPPING) != mapping:
        transaction.set_properties(**{_MAPPING: mapping})


def _is_unpromotable(known: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column was widened in a way that Iceberg does not know, at any depth."""
    if pa.types.is_struct(known) and pa.types.is_struct(wanted):
        types = {field.name: field.type for field in known}
        return any(field.name in types and _is_unpromotable(types[field.name], field.type) for field in wanted)
    if _is_list(known) and _is_list(wanted):
        return _is_unpromotable(known.value_type, wanted.value_type)
    return bool(pa.types.is_integer(known) and pa.types.is_floating(wanted))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _optional(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


def _pyiceberg() -> Any:
    try:
        import pyiceberg.catalog
        import pyiceberg.exceptions
        import pyiceberg.io.pyarrow
    except ModuleNotFoundError:
        raise missing_library("pyiceberg", "iceberg", "an Iceberg table") from None
    logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)  # it tells each column without statistics
    return pyiceberg
