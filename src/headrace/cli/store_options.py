"""The options of commands that work on a metadata store without a broker: --zookeeper, --zookeeper-config, --data."""

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from headrace.cli.shared import UsageProblem
from headrace.migrate.access import StoreAccess
from headrace.migrate.store_place import StorePlace


class StoreOptions(NamedTuple):
    """Where the metadata store is."""

    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", metavar="HOSTS", help="The ensemble of the cluster: HOST:PORT,...[/CHROOT]."),
    ] = None
    zookeeper_config: Annotated[
        Path | None,
        typer.Option(
            "--zookeeper-config", metavar="FILE", help="A properties file with zookeeper.* settings, as for TLS."
        ),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="The data directory of a broker alone that does not run."),
    ] = None

    def place(self) -> StorePlace | None:
        """Where the options say that the store is; None if a broker is to be asked. Raises `UsageProblem`."""
        if self.zookeeper is not None and self.data is not None:
            raise UsageProblem("--zookeeper and --data exclude each other")
        if self.zookeeper_config is not None and self.zookeeper is None:
            raise UsageProblem("--zookeeper-config needs --zookeeper")
        if self.data is not None:
            return StorePlace(data=self.data)
        return (
            None if self.zookeeper is None else StorePlace(zookeeper=StoreAccess(self.zookeeper, self.zookeeper_config))
        )
