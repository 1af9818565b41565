"""Access to resources, in Apache Kafka's terms. Pure: no socket, no clock, no broker.

Begin with `access`: operations, types of resources, and the error of each refusal.
"""
