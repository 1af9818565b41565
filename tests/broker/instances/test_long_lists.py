"""An address list of 10,000 networks does not hold the event loop: it takes a tenth of a second to read."""

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.operations.instance_admin import InstanceAdmin
from headrace.errors import KafkaError
from headrace.instances import address_list
from headrace.instances.definition import ADDRESSES_MAX
from tests.broker.instances.houses import Houses

NETWORKS = [f"10.{number >> 8}.{number & 255}.0/24" for number in range(ADDRESSES_MAX - 1)]


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Houses]:
    with Houses(tmp_path_factory.mktemp("lists") / "data", ()) as found:
        yield found


@pytest.mark.slow
def test_a_long_list_is_read_on_other_threads(houses: Houses, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is created, stored, read again, served, altered, and when it is wrong."""
    parsed: Counter[int] = Counter()
    parse = address_list.parse_network

    def counted(text: str) -> address_list.Network:
        parsed[threading.get_ident()] += 1
        return parse(text)

    async def ident() -> int:
        return threading.get_ident()

    address_list.check_networks.cache_clear()
    monkeypatch.setattr(address_list, "parse_network", counted)
    loop = houses.run(ident)
    with Cluster(houses.bootstrap) as cluster:
        admin = InstanceAdmin(cluster)
        admin.create_instance("acme", {"allow": ["127.0.0.0/8", *NETWORKS]})
        admin.await_listeners("acme")
        admin.alter_instance("acme", {"bytes_in": 1000})
        admin.alter_instance("acme", {"allow": [], "deny": NETWORKS})
        with pytest.raises(KafkaError, match=r"'10\.0\.0\.1/8' is not a network"):
            admin.alter_instance("acme", {"deny": [*NETWORKS[:-1], "10.0.0.1/8"]})
        assert len(admin.describe_instances(["acme"])[0].instance.deny) == len(NETWORKS)
    assert sum(parsed.values()) > 2 * len(NETWORKS)
    assert parsed[loop] < 10
