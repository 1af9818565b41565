"""The producer: records or columns in, acknowledged batches out.

Begin with `producer`, then `accumulator` (pure) and `sender` (its thread).
"""
