"""kafka.* options as settings of our client."""

import pytest

from headrace.client.core.settings import ClientSettings
from headrace.spark.source.cluster_access import client_settings, connect, fetch_sizes, isolation_level
from headrace.spark.source.options import OptionError, parse_options


def test_nothing_given_means_the_clients_defaults_under_our_name() -> None:
    assert client_settings({}) == ClientSettings(client_id="headrace-spark", waits_for_brokers=True)


def test_kafkas_names_reach_the_client() -> None:
    given = {"client.id": "me", "request.timeout.ms": "5", "default.api.timeout.ms": "7", "metadata.max.age.ms": "9"}
    expected = ClientSettings(
        client_id="me", request_timeout_ms=5, api_timeout_ms=7, metadata_max_age_ms=9, waits_for_brokers=True
    )
    assert client_settings({**given, "some.java.setting": "ignored"}) == expected


def test_a_time_that_is_no_number_is_named() -> None:
    with pytest.raises(OptionError, match=r"kafka.request.timeout.ms = '5s': is not a whole number"):
        client_settings({"request.timeout.ms": "5s"})


def test_isolation_levels_have_kafkas_names() -> None:
    assert (isolation_level({}), isolation_level({"isolation.level": "read_committed"})) == (0, 1)
    with pytest.raises(OptionError, match="is read_uncommitted or read_committed"):
        isolation_level({"isolation.level": "snapshot"})


def test_the_size_of_a_fetch_can_be_set() -> None:
    assert fetch_sizes({"max.partition.fetch.bytes": "4096"}).partition_max_bytes == 4096


def test_a_broker_address_that_is_none_is_named() -> None:
    with pytest.raises(OptionError, match=r"kafka.bootstrap.servers = 'nowhere'"):
        connect(parse_options({"kafka.bootstrap.servers": "nowhere", "subscribe": "t"}))
