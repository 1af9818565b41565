"""Mirroring: copies topics of one cluster into another, each record once, in its partition and in its order.

`mirror` is the loop: read, write, and commit the progress in one transaction of the target. `topics` chooses and
creates topics, `source_header` says in each record where it came from. Knows the client alone. Begin with `mirror`.
"""
