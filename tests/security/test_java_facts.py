"""Subjects, mapping rules and stored passwords, compared with what Java and Kafka's own classes make of them."""

import os
import subprocess
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from headrace.errors import InvalidConfig
from headrace.security.password_encoder import decode, encode
from headrace.security.ssl_principals import NoRuleMatches, SslPrincipals, java_name
from tests.peers import kafka

pytestmark = [pytest.mark.peer, pytest.mark.slow]

HERE = Path(__file__).parent
VALUES = (
    "alice", " alice", "alice ", "  ", "a  b", "a,b", "a=b", "a+b", 'a"b', "a\\b", "a<b>c", "a;b", "#a", "a#", "/a/",
    "Müller", "日本", "a\tb", "\ta", "a\rb", "\ra", "x" * 60, "*.example.com", "a\u202eb",
)  # fmt: skip
ATTRIBUTES = (
    NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME, NameOID.STREET_ADDRESS, NameOID.DOMAIN_COMPONENT, NameOID.USER_ID,
    NameOID.EMAIL_ADDRESS, NameOID.SERIAL_NUMBER, NameOID.TITLE, NameOID.GIVEN_NAME, NameOID.SURNAME,
    NameOID.DN_QUALIFIER, NameOID.PSEUDONYM, NameOID.POSTAL_CODE,
)  # fmt: skip


def names() -> list[x509.Name]:
    """Subjects of every shape."""
    found = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, value)]) for value in VALUES]
    found += [x509.Name([x509.NameAttribute(each, "value 1")]) for each in ATTRIBUTES]
    found += [
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "älice", kind)])
        for kind in (_ASN1Type.UTF8String, _ASN1Type.BMPString, _ASN1Type.UniversalString)
    ]
    found.append(
        x509.Name(
            [
                x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.COUNTRY_NAME, "DE")]),
                x509.RelativeDistinguishedName(
                    [x509.NameAttribute(NameOID.USER_ID, "7"), x509.NameAttribute(NameOID.COMMON_NAME, "Bob")]
                ),
            ]
        )
    )
    found.append(x509.Name([]))
    return found


def certificate(subject: x509.Name) -> bytes:
    """A certificate with this subject."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def java(*questions: tuple[str, ...]) -> list[str]:
    """Java's answers."""
    command = [
        "java",
        "-cp",
        f"{kafka.jars('3.9.2')}/*",
        str(HERE / "TlsFacts.java"),
        *("\1".join(q) for q in questions),
    ]
    done = subprocess.run(
        command, capture_output=True, timeout=120, check=True, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    return [b64decode(line).decode() for line in done.stdout.split(b"\n")[: len(questions)]]


def test_a_subject_is_written_as_java_writes_it(tmp_path: Path) -> None:
    files = []
    for number, name in enumerate(names()):
        files.append(tmp_path / f"{number}.pem")
        files[-1].write_bytes(certificate(name))
    theirs = java(*(("subject", str(file)) for file in files))
    ours = [java_name(x509.load_pem_x509_certificate(file.read_bytes()).subject) for file in files]
    assert ours == theirs


RULES = (
    "DEFAULT",
    "RULE:^CN=([^,]+),.*$/$1/L,DEFAULT",
    "RULE:^CN=([^,]+),.*$/$1/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
    "RULE:.*/x/",
    "RULE:CN=(\\w+).*/a\\/b$1/",
    "RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U, DEFAULT",
    "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/,DEFAULT",
    "RULE:CN=(.*)/$1$2/",
    "RULE:CN=(\\w+)(.*)/$1-$2-$0/ , DEFAULT",
    "RULE:^CN=([^,]+)$/$1/",
)
SUBJECTS = ("CN=Alice,OU=ServiceUsers,O=Org,L=Paris,ST=IDF,C=FR", "CN=Bob", "OU=nobody", "CN=duke,OU=x,DC=y", "")


def test_rules_make_the_principals_that_kafka_makes() -> None:
    def ours(rules: str, subject: str) -> str:
        try:
            return SslPrincipals(rules).name_of(subject)
        except NoRuleMatches:
            return "!NoMatchingRule"

    asked = [(rules, subject) for rules in RULES for subject in SUBJECTS]
    theirs = java(*(("map", *each) for each in asked))
    assert {each: ours(*each) for each in asked} == dict(zip(asked, theirs, strict=True))


@pytest.mark.parametrize(
    "rules", ["RULE:^CN=(.*)/$1", "nonsense", "RULE:((/x/", "RULE:^CN=([^,]+),.*$/$1/L DEFAULT", "RULE:.*/x/\nDEFAULT"]
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
        SslPrincipals(rules)


def test_passwords_go_both_ways() -> None:
    own = encode("päss word", "a secret", iterations=4096, key_bits=128, random_bytes=os.urandom)
    theirs, back = java(("encode", "a secret", "their password"), ("decode", "a secret", own))
    assert decode(theirs, "a secret") == "their password"
    assert back == "päss word"
