"""Passwords in the metadata store: encrypted as Apache Kafka 3.9 does it."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.password_encoder import Undecodable, decode, encode


def encoded(password: str, secret: str = "secret") -> str:
    return encode(password, secret, iterations=1024, key_bits=128, random_bytes=os.urandom)


@given(st.text(max_size=100))
def test_what_is_encoded_is_decoded(password: str) -> None:
    assert decode(encoded(password), "secret") == password


def test_another_secret_or_a_damaged_text_is_one_kind_of_error() -> None:
    text = encoded("the password")
    for wrong, secret in ((text, "wr0ng"), (text[:-40], "secret"), ("", "secret"), ("the password", "secret"),
                          (text.replace("iterations:1024", "iterations:999999999"), "secret")):  # fmt: skip
        with pytest.raises(Undecodable) as caught:
            decode(wrong, secret)
        assert "the password" not in str(caught.value)
        assert secret not in str(caught.value).replace("password.encoder.secret", "")
