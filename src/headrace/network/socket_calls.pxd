# System calls that do not block, for compiled code that makes them without the interpreter.
from libc.stdint cimport int64_t

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void *buf, size_t size, int flags)
    ssize_t send(int fd, const void *buf, size_t size, int flags)

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/uio.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif

    /* Whether the page cache has a byte of a file; true also where the system or the file system cannot tell. */
    static inline int headrace_is_cached(int fd, int64_t position) {
    #ifdef RWF_NOWAIT
        char byte;
        struct iovec one = {&byte, 1};
        return preadv2(fd, &one, 1, (off_t)position, RWF_NOWAIT) >= 0 || errno != EAGAIN;
    #else
        (void)fd; (void)position;
        return 1;
    #endif
    }
    """
    int MSG_NOSIGNAL
    bint is_cached "headrace_is_cached"(int fd, int64_t position) noexcept nogil
