"""Each client by TLS, by a certificate of its own, and by each SASL mechanism, against secured brokers."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.security.client_options import client_settings
from headrace.config import read_properties
from headrace.testing import Broker, Security
from tests.conformance.cases import case
from tests.conformance.conftest import new_name
from tests.conformance.model import MTLS, OAUTHBEARER, PLAIN, SASL_MECHANISMS, SCRAM_256, SCRAM_512, TLS, Client
from tests.conformance.securing import write_and_read

SECURITY = {
    TLS: Security("SSL"),
    MTLS: Security("SSL", client_certificates=True),
    "sasl": Security("SASL_SSL", mechanisms=SASL_MECHANISMS),
}
VALUES = [b"secured %d" % n for n in range(3)]
SecuredBroker = Callable[[str], Broker]


@pytest.fixture(scope="session")
def secured() -> Iterator[SecuredBroker]:
    """The broker for a column, which all clients share."""
    running: dict[str, Broker] = {}
    with ExitStack() as stack:

        def broker(column: str) -> Broker:
            kind = "sasl" if column in SASL_MECHANISMS else column
            if kind not in running:
                running[kind] = stack.enter_context(Broker(security=SECURITY[kind], subprocess=True))
            return running[kind]

        yield broker


@case(TLS, MTLS, PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER, slow=True)
def test_writes_and_reads_through_a_secured_listener(cell: tuple[Client, str], secured: SecuredBroker) -> None:
    client, column = cell
    topic = new_name()
    options = options_elsewhere(column)
    if options is None:
        broker = secured(column)
        mechanism = column if column in SASL_MECHANISMS else None
        bootstrap, options = broker.bootstrap, broker.client_options("alice", mechanism)
        settings = broker.client_settings("admin", mechanism)
    else:
        bootstrap = options.pop("bootstrap.servers")
        settings = client_settings(options)
    with Admin(bootstrap, settings) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    assert write_and_read(client, bootstrap, options, topic, VALUES) == VALUES


def options_elsewhere(column: str) -> dict[str, str] | None:
    """The options of a client of the broker that HEADRACE_CONFORMANCE_BOOTSTRAP names, None if it is not set.

    They are in COLUMN.properties in the directory HEADRACE_CONFORMANCE_SECURED, with the `bootstrap.servers` of the
    column's listener. Skips the cell if there is no such file.
    """
    if not os.environ.get("HEADRACE_CONFORMANCE_BOOTSTRAP"):
        return None
    directory = os.environ.get("HEADRACE_CONFORMANCE_SECURED")
    if not directory:
        pytest.skip("HEADRACE_CONFORMANCE_SECURED does not say how the broker under test is reached securely")
    file = Path(directory) / f"{column}.properties"
    if not file.exists():
        pytest.skip(f"HEADRACE_CONFORMANCE_SECURED has no {file.name}: the broker under test is not asked by {column}")
    return read_properties(file.read_text())


def test_another_broker_is_asked_as_its_files_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Otherwise the cells would be those of headrace, though another broker is under test."""
    monkeypatch.delenv("HEADRACE_CONFORMANCE_BOOTSTRAP", raising=False)
    assert options_elsewhere(PLAIN) is None
    monkeypatch.setenv("HEADRACE_CONFORMANCE_BOOTSTRAP", "127.0.0.1:9092")
    monkeypatch.delenv("HEADRACE_CONFORMANCE_SECURED", raising=False)
    with pytest.raises(pytest.skip.Exception, match="does not say how"):
        options_elsewhere(PLAIN)
    monkeypatch.setenv("HEADRACE_CONFORMANCE_SECURED", str(tmp_path))
    (tmp_path / f"{PLAIN}.properties").write_text("bootstrap.servers=127.0.0.1:9093\nsasl.mechanism=PLAIN\n")
    assert options_elsewhere(PLAIN) == {"bootstrap.servers": "127.0.0.1:9093", "sasl.mechanism": "PLAIN"}
    with pytest.raises(pytest.skip.Exception, match=f"no {TLS}.properties"):
        options_elsewhere(TLS)
