"""SASL mechanisms: state machines of both sides, bytes in, bytes out. Pure: no socket, no clock, no thread.

    client ──── messages ────▶ server         each side: `respond(message)` returns the next message, until complete

exchange.py     what the mechanisms have in common: outcomes, and the two kinds of failure
plain.py        PLAIN (RFC 4616)
scram.py        formulas and messages of SCRAM (RFC 5802, RFC 7677), with Kafka's extension for delegation tokens
scram_server.py, scram_client.py
oauthbearer.py  OAUTHBEARER (RFC 7628); tokens are validated by the caller
gssapi.py       GSSAPI (RFC 4752): Kerberos; the library that speaks it is the caller's

Begin with `exchange`.
"""
