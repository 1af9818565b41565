"""A ZooKeeper as it is named on a command line, with the file that says how to speak to it."""

from pathlib import Path
from typing import NamedTuple

from headrace.config import BROKER_SETTINGS, parse_broker, read_properties
from headrace.coordination.ensemble import Ensemble, ensemble_of
from headrace.errors import InvalidConfig
from headrace.migrate.refusal import MigrationRefused


class Access(NamedTuple):
    """An address, and a broker's properties, of which those about ZooKeeper count."""

    address: str  # HOST:PORT[,...][/CHROOT]
    config: Path | None = None  # a properties file with zookeeper.ssl.* and the like

    def ensemble(self) -> Ensemble:
        """Raises MigrationRefused."""
        try:
            given = read_properties(self.config.read_text(encoding="utf-8")) if self.config else {}
            about = ("zookeeper.", "headrace.zookeeper.")
            known = {key: text for key, text in given.items() if key.startswith(about) and key in BROKER_SETTINGS}
            return ensemble_of(parse_broker({**known, "zookeeper.connect": self.address}))
        except InvalidConfig as error:
            raise MigrationRefused(error.message) from None
        except OSError as error:
            raise MigrationRefused(f"{self.config}: {error.strerror}") from None
