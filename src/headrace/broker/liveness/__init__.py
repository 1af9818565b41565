"""Failure detection: watches other brokers over connections and reports suspicions in the metadata store.

May know peers, metadata, the metadata store and this broker's controller. Begin with `failure_detector`, its only
module. `headrace.controller.decisions.fencing` decides what follows from a suspicion.
"""
