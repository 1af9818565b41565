"""SCRAM credentials of users, where Apache Kafka 3.9 keeps them: in the configs of /config/users/NAME.

    SCRAM-SHA-256    salt=...,stored_key=...,server_key=...,iterations=4096       also SCRAM-SHA-512

Quotas of the user stand beside them. `EntityConfigs` follows the changes, so a new password counts at once on every
broker. A credential that cannot be read is logged, without its text, and counts as none.

/headrace/scram_decoys holds the secret from which the credentials of unknown names are made: the same on every broker
of the cluster and after a restart, or a client could tell them from stored ones.
Source: Kafka's `ScramCredentialUtils`.
"""

import json
import logging
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Mapping

from headrace.metadata.entity_configs import USERS, EntityConfigs, sanitize
from headrace.metadata.znodes import SCRAM_DECOYS, CorruptNode, config
from headrace.metastore.store import Create, MetadataStore, NodeExists, ensure_path, parent_of
from headrace.security.sasl.scram import HASHES, ITERATIONS_MIN, ScramCredential, format_credential, parse_credential

log = logging.getLogger(__name__)

_SECRET_BYTES = 32
_USUAL_MAX = 16  # each costs a microsecond in every login
_KEY_BYTES = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}
_ABSENT = {
    mechanism: format_credential(ScramCredential(bytes(26), bytes(size), bytes(size), ITERATIONS_MIN))
    for mechanism, size in _KEY_BYTES.items()
}
"""What is read for a user that does not exist."""


class ScramUsers:
    """The credentials of all users."""

    def __init__(self, entities: EntityConfigs) -> None:
        self._entities = entities
        self._iterations: dict[str, Counter[int]] = {mechanism: Counter() for mechanism in HASHES}
        self._known: dict[str, dict[str, int]] = {}  # iterations by user and mechanism
        self._usual: dict[str, dict[int, int]] = {}  # dropped when users change
        entities.on_change(USERS, self._changed)

    def credential(self, mechanism: str, name: str) -> ScramCredential | None:
        """The credential of a user; None if there is none."""
        text = self._entities.get(USERS, sanitize(name)).get(mechanism)
        try:
            found = parse_credential(text or _ABSENT[mechanism])  # reading takes time, which would tell who exists
            return found if text else None
        except ValueError:  # which was logged when it came, not at each login
            return None

    def users_by_iterations(self, mechanism: str) -> Mapping[int, int]:
        """How many credentials of a mechanism have how many iterations: the most usual ones, of those in use."""
        found = self._usual.get(mechanism)
        if found is None:
            found = self._usual[mechanism] = dict(self._iterations[mechanism].most_common(_USUAL_MAX))
        return found

    def _changed(self, node: str, configs: Mapping[str, str]) -> None:
        if "/" in node:
            return
        self._usual.clear()
        for mechanism, iterations in self._known.pop(node, {}).items():
            counted = self._iterations[mechanism]
            counted[iterations] -= 1
            if not counted[iterations]:
                del counted[iterations]
        found = {}
        for mechanism in HASHES.keys() & configs.keys():
            try:
                found[mechanism] = parse_credential(configs[mechanism]).iterations
            except ValueError as error:
                path = config(USERS, node)
                log.warning("the %s credential in %s is malformed and is ignored: %s", mechanism, path, error)
        found = {mechanism: count for mechanism, count in found.items() if count >= ITERATIONS_MIN}
        for mechanism, iterations in found.items():
            self._iterations[mechanism][iterations] += 1
        if found:
            self._known[node] = found


async def decoy_secret(store: MetadataStore, random_bytes: Callable[[int], bytes]) -> bytes:
    """The secret of the cluster, made by the first broker that needs it. Raises `CorruptNode`."""
    [node] = await store.get_many([SCRAM_DECOYS])
    if node is None:
        made = _encode(random_bytes(_SECRET_BYTES))
        await ensure_path(store, parent_of(SCRAM_DECOYS))
        try:
            await store.multi([Create(SCRAM_DECOYS, made)])
            return _decode(made)
        except NodeExists:
            [node] = await store.get_many([SCRAM_DECOYS])
            assert node is not None
    return _decode(node.data)


def _encode(secret: bytes) -> bytes:
    return json.dumps({"version": 1, "secret": b64encode(secret).decode()}, separators=(",", ":")).encode()


def _decode(data: bytes) -> bytes:
    try:
        return b64decode(json.loads(data)["secret"], validate=True)
    except (ValueError, KeyError, TypeError):
        raise CorruptNode(
            f"{SCRAM_DECOYS} does not hold a secret: delete the node, and a broker makes another"
        ) from None
