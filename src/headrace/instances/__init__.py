"""Instances: many tenants in one cluster, each a Kafka of its own, with one limit over all brokers that serve it.

Pure: the time is an argument. Begin with `definition`, which says what an instance is; `names` maps the names that its
clients use to those of the cluster; `flow` shares an instance's limit out to its brokers.
"""
