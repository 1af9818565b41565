"""Who a client is and what it may do, in Apache Kafka's terms. Pure: no socket, no clock, no broker.

access.py       operations, types of resources, and the error of each refusal
acls/           access control lists
sasl/           SASL mechanisms, both sides
jaas.py         Kafka's `sasl.jaas.config`
delegation_tokens.py    passwords of a limited time

Begin with `access` for rights, with `sasl.exchange` for authentication.
"""
