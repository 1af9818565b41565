"""Groups of all kinds: committed offsets, and in a package for each kind its members and their protocol.

Pure: no clock, no IO, no randomness; knows the messages of `protocol`. Begin with `coordinator`, which serves groups of
every kind, and go on to a kind's `requests`, such as `classic.requests`.
"""
