"""Distributed flow control: one limit of an instance over many brokers, shared out by the master, which is the
controller.

    broker: BrokerLeases ──Report──▶ master: FlowMaster ──▶ Pool (an instance, one direction) ──▶ an allocator
            rates in force ◀──Answer── leases                bounds of what each broker may use     seed, or max-min

Begin with `leases`, which has the messages, the times and the invariant. `allotment` says what an allocator is, `seed`
and `max_min` are the two. Pure: the time is an argument, in seconds of any clock that does not go back.
"""
