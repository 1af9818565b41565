"""Server-side assignors: which member of a group is to own which partitions or tasks. Pure functions over immutable
values.

May know nothing but bytes and numbers; a coordinator may call them in place or on a thread. Begin with `assignor`,
their interface, then `uniform`, the default of consumer groups; `sticky_tasks` assigns the tasks of Kafka Streams.
"""
