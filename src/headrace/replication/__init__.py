"""What a broker knows about one partition's replicas, and what follows from it: pure decisions, no IO, no clock.

isr              the in-sync replicas: committed, or with a change on its way to the controller
partition_state  leader epoch, high watermark, followers' progress, acks
"""
