"""The metadata store on a ZooKeeper ensemble: ordered operations, reconnection, and writes whose answer was lost.

Knows no paths of Kafka; the lint contracts name the modules that may import kazoo. Begin with `store`; `requests` has
the requests under way, `recovery` the work after each new connection, and `link` is the interface between these and
`connection`.
"""
