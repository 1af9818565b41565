"""The transaction coordinator: a pure state machine over the records of `__transaction_state`.

May know the protocol's messages and `coordinators.runtime`; knows no clock, no IO and no event loop. Begin with
`coordinator`.
"""
