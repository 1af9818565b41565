"""The assignors of a group's leader, as Apache Kafka's clients have them. Pure.

Each takes the members, the number of partitions of each topic, and the racks of the replicas, and returns who gets
what. Clients of any language may lead a group, so each assignor gives what Java's of the same name gives.
Begin with `range_assignor`; `by_name` finds an assignor.
"""
