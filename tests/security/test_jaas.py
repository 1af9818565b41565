"""The parser of `sasl.jaas.config`: Kafka's examples, quoting, and errors that show no secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidConfig
from headrace.security.jaas import login_module, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_reads_options_in_quotes_and_without() -> None:
    module = login_module(f'{SCRAM} REQUIRED username="a b" password=\'c"d\' tokenauth=true;', "SCRAM-SHA-512")
    assert module.options == {"username": "a b", "password": 'c"d', "tokenauth": "true"}


def test_reads_the_users_of_a_server() -> None:
    text = f"""
        {PLAIN} required // a comment
        username="admin" password="admin-secret" /* another; */
        user_admin="admin-secret"
        user_alice="alice's; \\"secret\\" \\u \\101";
    """
    assert login_module(text, "PLAIN").users == {"admin": "admin-secret", "alice": 'alice\'s; "secret" u A'}


@given(password=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_password_can_be_quoted(password: str) -> None:
    escaped = password.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\n", "\\n")
    module = login_module(f'{PLAIN} required username="alice" password="{escaped}";', "PLAIN")
    assert module.options["password"] == password


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  // nothing",
        PLAIN,
        f"{PLAIN} required",
        f"{PLAIN} hunter2 a=b;",
        f'{PLAIN} required password="hunter2"',
        f'{PLAIN} required password="hunter2;',
        f"{PLAIN} required password=correct hunter2;",
        f'{PLAIN} required password "hunter2";',
        f'{PLAIN} required password=="hunter2";',
        f"{PLAIN} required password=;",
        f"{PLAIN} required password=hunter2@home;",
        'username="alice" password="hunter2";',
        f'{PLAIN} required password="hunter2"; {PLAIN} required;',
        f'{SCRAM} required password="hunter2";',
        'hunter2 required password="a";',
    ],
)
def test_errors_name_the_place_and_show_no_secret(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"sasl\.jaas\.config") as raised:
        login_module(text, "PLAIN")
    assert "hunter2" not in str(raised.value)


def test_a_module_shows_no_value() -> None:
    [module] = parse_jaas(f'{PLAIN} required password="hunter2";')
    assert repr(module) == f"LoginModule({PLAIN}, ['password'])"


@given(text=st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_jaas(text)
    except InvalidConfig:
        pass
