"""Which principals may enter an instance."""

import pytest

from headrace.errors import InvalidConfig
from headrace.instances.definition import Instance
from headrace.instances.principals import Principals


@pytest.mark.parametrize(("pattern", "name", "fits"), [
    ("CN=alice,OU=acme", "CN=alice,OU=acme", True),
    ("User:CN=alice,OU=acme", "CN=alice,OU=acme", True),
    ("CN=alice,OU=acme", "CN=alice,OU=acme2", False),
    ("CN=*,OU=acme,O=Example", "CN=alice,OU=acme,O=Example", True),
    ("CN=*,OU=acme,O=Example", "CN=Zoë Müller (ops),OU=acme,O=Example", True),
    ("CN=*,OU=acme,O=Example", "CN=eve,OU=zeta,OU=acme,O=Example", False),
    ("CN=*,OU=acme,O=Example", "CN=eve\\,OU=acme,O=Example", False),
    ("CN=*,OU=acme,O=Example", "CN=eve+UID=1,OU=acme,O=Example", False),
    ("CN=*,OU=acme,O=Example", "CN=eve,OU=acme,O=Example\n", False),
    ("*@acme.example", "alice@acme.example", True),
    ("*@acme.example", "alice@acmexexample", False),
    ("acme-*-*", "acme-a-b", True),
    ("acme-*", "zeta-acme-b", False),
    ("*", "CN=eve\\,OU=acme,O=Example", True),
    ("a.b", "axb", False),
])  # fmt: skip
def test_a_pattern_fits_whole_names_and_no_other_attribute(pattern: str, name: str, fits: bool) -> None:
    assert (name in Principals([pattern])) == fits
    assert (name in Principals(["other", "x*", pattern])) == fits


def test_an_asterisk_in_the_name_of_an_administrator_is_a_character() -> None:
    assert "eve" not in Principals([], ["*", "e*"])
    assert "e*" in Principals([], ["User:e*"])
    assert "" not in Principals([])


def test_a_long_name_takes_no_time() -> None:
    """A client chooses it, up to the size of a certificate."""
    assert "a" * 100_000 not in Principals([f"{'*a' * 100}b"])


def test_a_listener_that_knows_nobody_has_no_principals() -> None:
    with pytest.raises(InvalidConfig, match="principals need a listener with TLS or SASL"):
        Instance("acme", "id", principals=("CN=*",))
    assert Instance("acme", "id", principals=("CN=*",), protocol="SSL").principals == ("CN=*",)
    with pytest.raises(InvalidConfig, match="principals of an instance has 101 entries"):
        Instance("acme", "id", protocol="SSL", principals=("x",) * 101)
