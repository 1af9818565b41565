"""Consumer groups of the classic protocol: membership, rebalances, and committed offsets.

Pure: no clock, no IO, no randomness; knows the messages of `protocol`. Begin with `coordinator`, whose methods lead to
`joining`, `syncing`, `leaving` and `commits`.
"""
