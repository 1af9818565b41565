# System calls on sockets that do not block, for compiled code that makes them without the interpreter.
cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void *buf, size_t size, int flags)
    ssize_t send(int fd, const void *buf, size_t size, int flags)

cdef extern from *:
    """
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif
    """
    int MSG_NOSIGNAL
