"""Blocks of PEM text: found as Kafka's PemStore finds them, also on one line, with blanks for line ends.

-----BEGIN CERTIFICATE-----  base64, any white space  -----END CERTIFICATE-----
"""

import re
from typing import NamedTuple

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----([^-]*)-----END \1-----")
_LINE = 64

CERTIFICATE_LABELS = (b"CERTIFICATE", b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE")


class Block(NamedTuple):
    """One block: the label between BEGIN and the dashes, and the whole block in its canonical form."""

    label: bytes
    text: bytes


def blocks(data: bytes) -> list[Block]:
    """The blocks in `data`, in their order."""
    return [Block(match[1], _canonical(match[1], match[2])) for match in _BLOCK.finditer(data)]


def certificate_texts(found: list[Block]) -> list[bytes]:
    """The certificates among the blocks."""
    return [each.text for each in found if each.label in CERTIFICATE_LABELS]


def key_texts(found: list[Block]) -> list[bytes]:
    """The private keys among the blocks."""
    return [each.text for each in found if each.label.endswith(b"PRIVATE KEY")]


def _canonical(label: bytes, body: bytes) -> bytes:
    """The block with lines of 64 characters. A body with headers (`Proc-Type:`) has its own lines already."""
    if b":" not in body:
        packed = b"".join(body.split())
        body = b"\n" + b"".join(packed[at : at + _LINE] + b"\n" for at in range(0, len(packed), _LINE))
    return b"-----BEGIN " + label + b"-----" + body + b"-----END " + label + b"-----\n"
