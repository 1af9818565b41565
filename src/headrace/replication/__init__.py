"""Replication of one partition as pure decisions: leader state, ISR, followers, commit rule, replica selection.

Pure: no IO and no clock; knows no metadata store and no log. Begin with `partition_state`, then `isr` and `follower`.
"""
