# The C types of shortcuts.py's names; shortcuts.py itself stays plain Python.
cimport cython
from libc.stdint cimport uint8_t

from headrace.broker.coordinator_host.plain_groups cimport PlainGroups
from headrace.broker.fetch.plain_fetch cimport PlainFetches
from headrace.broker.fetch.plain_follow cimport PlainFollows
from headrace.broker.produce.produce_shortcut cimport ProduceShortcut
from headrace.network.connection cimport Connection, Shortcut
from headrace.protocol.plain_fetch cimport is_of_follower

cdef int _PRODUCE, _FETCH

cdef class Shortcuts(Shortcut):
    cdef readonly ProduceShortcut produces
    cdef readonly PlainFetches fetches
    cdef readonly PlainFollows follows
    cdef readonly PlainGroups groups
    cdef Shortcut _last

    @cython.locals(answer_end=Py_ssize_t)
    cpdef Py_ssize_t answer(
        self, Connection connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    cpdef timed(self, Connection connection)
