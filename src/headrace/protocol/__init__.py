"""Kafka's protocol, sans IO: schemas, codecs, headers, and the conversation on one connection.

schemas/*.schema   what every message looks like at every version, in our notation
schema.py          reads the notation
compiler.py        turns one (message, version) into straight-line Python, at first use
message.py         the base class of all messages: decode, encode, encode_chunks
messages.py        the messages themselves, by name, made at first use; messages.pyi tells type checkers
headers.py         request and response headers
conversation/      frames out of a byte stream, requests in flight, negotiation of versions
apis.py            the API keys

Pure: no IO. Begin with `messages`, then `codec` and `conversation`.
"""
