"""The controller: the elected broker that elects leaders, manages topics, and sends both to all brokers.

May know the metadata store, `metadata` and `protocol`; no network and no log. The decisions are pure, in `decisions`.
Begin with `controller`, then `active_controller` and `controller_epoch`.
"""
