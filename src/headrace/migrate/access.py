"""The ZooKeeper of a command line: its address, and a file with its connection settings."""

from pathlib import Path
from typing import NamedTuple

from headrace.config import decode_properties, read_broker
from headrace.errors import InvalidConfig
from headrace.metastore.zookeeper.ensemble import Ensemble, ensemble_of
from headrace.migrate.refusal import MigrationRefused
from headrace.network.zookeeper_kerberos import zookeeper_kerberos
from headrace.network.zookeeper_tls import zookeeper_context


class StoreAccess(NamedTuple):
    """An address, and a broker's properties, of which only the ZooKeeper settings are used."""

    address: str  # HOST:PORT[,...][/CHROOT]
    config: Path | None = None  # a properties file with zookeeper.ssl.* and the like

    def ensemble(self) -> Ensemble:
        """Raises MigrationRefused."""
        try:
            given = decode_properties(self.config.read_bytes()) if self.config else {}
            about = ("zookeeper.", "headrace.zookeeper.")
            known = {key: text for key, text in given.items() if key.startswith(about)}
            config = read_broker({**known, "zookeeper.connect": self.address}).config
            return ensemble_of(config, zookeeper_context, zookeeper_kerberos)
        except InvalidConfig as error:
            raise MigrationRefused(error.message) from None
        except OSError as error:
            raise MigrationRefused(f"{self.config}: {error.strerror}") from None
