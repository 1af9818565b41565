"""The broker process: it accepts connections, dispatches requests to handlers, and runs replication and coordinators.

May know every layer below it: the log, replication, coordinators, metadata, the controller and the network. Nothing
below imports it; `cli` and `testing` start it. Begin with `app`, then `assembly`, which builds the services, and
`request.dispatch`, where each request enters.
"""
