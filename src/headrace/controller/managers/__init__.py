"""The managers of one controller epoch: leaders, topics, reassignments, fencing.

Each decides by `decisions`, writes and sends through `ControllerEpoch`; none knows the network. Begin with
`leader_manager`.
"""
