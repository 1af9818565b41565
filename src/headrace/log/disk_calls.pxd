# The C types of disk_calls.py's names; disk_calls.py itself stays plain Python.
cimport cython
from cpython.array cimport array

@cython.locals(of_fds=array, failed=Py_ssize_t, count=Py_ssize_t, code=int)
cpdef tuple sync_files(array fds)

@cython.locals(failed=int, data=cython.p_char)
cpdef int sync_directory(bytes path)

@cython.locals(codes=array, data=cython.p_char, count=Py_ssize_t)
cpdef array remove_files(bytes paths, Py_ssize_t count)

@cython.locals(data=cython.p_char, known=array, count=Py_ssize_t, code=int, fd=int, failed=int)
cpdef int make_hole(bytes path, long long size)
