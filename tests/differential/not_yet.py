"""Scenarios that headrace does not pass yet, with what is missing. The list is to be emptied.

A scenario that is listed here and passes fails the run.
"""

TRANSACTIONS = "the transaction coordinator"

NOT_YET: dict[str, str] = {
    # test_add_partitions_to_txn.py
    "test_adds_no_partitions": TRANSACTIONS,
    "test_adds_partitions_of_several_transactions": TRANSACTIONS,
    "test_verifies_partitions": TRANSACTIONS,
    "test_adds_partitions_in_batches": TRANSACTIONS,
    # test_transaction_admin.py
    "test_describes_unknown_ids": TRANSACTIONS,
    # test_transactional_produce.py
    "test_a_produce_opens_the_next_transaction": TRANSACTIONS,
}
