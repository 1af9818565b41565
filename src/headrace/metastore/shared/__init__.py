"""One embedded tree for the brokers of one host, served over a unix socket.

`tree_server` serves a [database](../database.py) to sessions. `socket_link` is a broker's connection to it, below the
same `ZooKeeperStore` that talks to an ensemble. `frames` is what goes over the socket. Knows nothing of brokers. Begin
with `tree_server`.
"""
