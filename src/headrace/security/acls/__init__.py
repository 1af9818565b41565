"""Access control lists, in Apache Kafka's terms. Pure.

Begin with `model`: a rule, and the resources that it applies to. `filters` selects rules, `authorizer` decides by them.
"""
