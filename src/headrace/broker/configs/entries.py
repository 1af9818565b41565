"""Entries of DescribeConfigs responses: a value, its source, and its synonyms in the order of their precedence."""

from headrace.config import Setting
from headrace.protocol import messages as m

TYPES = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7, "class": 8, "password": 9}

Entry = m.DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = m.DescribeConfigsResponse.DescribeConfigsSynonym


class ConfigSource:
    """Where a value comes from."""

    TOPIC, BROKER, ALL_BROKERS, STATIC_BROKER, DEFAULT, BROKER_LOGGER, CLIENT_METRICS, GROUP = range(1, 9)


def synonym(name: str, value: str, source: int) -> Synonym:
    """One place that sets a value."""
    return Synonym(name=name, value=value, source=source)


def entry(setting: Setting, value: str, synonyms: list[Synonym]) -> Entry:
    """One config; its source is that of the first synonym."""
    return Entry(
        name=setting.name,
        value=value,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        synonyms=synonyms,
        config_type=TYPES[setting.kind],
        documentation=setting.doc,
    )
