# Rows that the garbage collector does not look at, in C for rows.py.
#
# A tuple of text, numbers and bytes can be in no cycle. The collector notices that of plain tuples, and not of those of
# a class: it would look at each record that a program holds, again and again, for half of what reading them costs.

cdef extern from *:
    """
    static PyObject *headrace_row(PyObject *kind, PyObject *topic, PyObject *partition, PyObject *offset,
                                  PyObject *timestamp, PyObject *timestamp_type, PyObject *key, PyObject *value,
                                  PyObject *headers)
    {
        PyObject *fields[8] = {topic, partition, offset, timestamp, timestamp_type, key, value, headers};
        PyObject *row = ((PyTypeObject *)kind)->tp_alloc((PyTypeObject *)kind, 8);
        if (row == NULL)
            return NULL;
        for (int at = 0; at < 8; at++) {
            Py_INCREF(fields[at]);
            PyTuple_SET_ITEM(row, at, fields[at]);
        }
        PyObject_GC_UnTrack(row);
        return row;
    }
    """
    object headrace_row(object kind, object topic, object partition, object offset, object timestamp,
                        object timestamp_type, object key, object value, object headers)
