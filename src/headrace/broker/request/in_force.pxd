# The C types of in_force.py's names; in_force.py itself stays plain Python.

cdef class RulesInForce:
    cdef public bint has_rules

cdef class QuotasInForce:
    cdef public bint is_active
