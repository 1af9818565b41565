"""SASL as a client of brokers: from Kafka's `sasl.*` options to the client's side of a mechanism.

login.py            the options, checked once; a mechanism for each connection
bearer_tokens.py    where OAUTHBEARER's tokens come from: a file, the environment, an endpoint

Used by the client and by brokers that connect to others. Not imported without SASL. May know `headrace.security.sasl`
and HTTP, for tokens. Begin with `login`.
"""
