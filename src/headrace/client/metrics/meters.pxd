# The C types of meters.py's names; meters.py itself stays plain Python.
cimport cython

cdef double WINDOW_S

cdef class _Sample:
    cdef public double start_s, sum, most
    cdef public Py_ssize_t count

cdef class Meter:
    cdef public double total
    cdef public Py_ssize_t count
    cdef object _clock, _lock
    cdef list _samples
    cdef _Sample _current

    cpdef record(self, double value=*)

    @cython.locals(sample=_Sample)
    cdef _count(self, double value, double now_s)

@cython.locals(place=Py_ssize_t, meter=Meter, now_s=double)
cpdef record_each(tuple meters, tuple values)
