"""The claims of bearer tokens."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.sasl.claims import Expected, InvalidToken, check_claims, read_unsecured

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000
GOOD: Mapping[str, object] = {"sub": "alice", "exp": NOW + 60, "iss": "https://issuer", "aud": "kafka", "scope": "a b"}
EXPECTED = Expected(issuer="https://issuer", audience=("kafka", "other"), scope=("a",))


def check(expected: Expected = EXPECTED, **claims: object) -> str:
    """The name in claims that are good apart from these; None removes one."""
    given = {name: value for name, value in {**GOOD, **claims}.items() if value is not None}
    return check_claims(json.dumps(given).encode(), expected, NOW_MS).name


def test_takes_name_and_expiry_of_a_good_token() -> None:
    token = check_claims(json.dumps(GOOD).encode(), EXPECTED, NOW_MS)
    assert (token.name, token.expires_at_ms) == ("alice", NOW_MS + 60_000)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["x", "other"]},
        {"exp": NOW - 29},
        {"nbf": NOW + 29},
        {"iat": NOW + 29.5},
        {"scope": ["b", "a"]},
        {"unknown": {"x": 1}},
    ],
)
def test_accepts_what_is_within_the_rules(claims: dict[str, Any]) -> None:
    assert check(**claims) == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None},
        {"exp": NOW - 30},
        {"exp": str(NOW + 60)},
        {"exp": True},
        {"exp": 1e300},
        {"exp": -1},
        {"nbf": NOW + 31},
        {"iat": NOW + 31},
        {"iss": None},
        {"iss": "https://issuer/"},
        {"iss": ["https://issuer"]},
        {"aud": None},
        {"aud": "kafka other"},
        {"aud": ["x"]},
        {"aud": [["kafka"]]},
        {"scope": None},
        {"scope": "ab"},
        {"sub": None},
        {"sub": ""},
        {"sub": " "},
        {"sub": 7},
        {"sub": "x" * 1001},
        {"sub": "\ud800x"},
    ],
)
def test_refuses_what_is_not(claims: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        check(**claims)


def test_names_of_claims_can_be_others() -> None:
    other = Expected(name_claim="client_id", scope_claim="scp", scope=("x",))
    assert check(other, client_id="robot", scp=["x"]) == "robot"


def _part(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def test_an_unsecured_token_says_so_and_has_no_signature() -> None:
    assert json.loads(read_unsecured(f"{_part({'alg': 'none'})}.{_part(GOOD)}.")) == GOOD
    for token in (
        f"{_part({'alg': 'RS256'})}.{_part(GOOD)}.",
        f"{_part({'alg': 'none'})}.{_part(GOOD)}.AAAA",
        f"{_part({'alg': 'none'})}.{_part(GOOD)}",
        f"{_part([])}.{_part(GOOD)}.",
        "..",
        "",
    ):
        with pytest.raises(InvalidToken):
            read_unsecured(token)


@given(st.one_of(st.binary(max_size=80), st.dictionaries(st.sampled_from(["sub", "exp", "aud", "iss"]), st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.text(max_size=3)),
)).map(lambda claims: json.dumps(claims).encode())))  # fmt: skip
def test_any_payload_is_checked_or_refused(payload: bytes) -> None:
    try:
        check_claims(payload, Expected(), NOW_MS)
    except InvalidToken:
        pass
