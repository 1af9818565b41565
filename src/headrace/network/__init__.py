"""Connections: carries request and response frames over sockets, for clients and to other brokers.

May know sockets, the event loop and the protocol's framing; knows nothing of partitions or handlers. Begin with
`server`, then `connection`; `answer_sender` sends its responses, `transport` is the socket below.
"""
