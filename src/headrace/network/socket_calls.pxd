# System calls that do not block, for compiled code that makes them without the interpreter.
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #ifdef __linux__
    #include <sys/syscall.h>
    #include <unistd.h>
    #endif
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif

    /* The C library's calls are points at which another thread may cancel this one. Nobody does, but in a process with
       threads each call pays for it. */
    static inline ssize_t headrace_recv(int fd, void *buf, size_t size, int flags) {
    #if defined(__linux__) && defined(SYS_recvfrom)
        return syscall(SYS_recvfrom, fd, buf, size, flags, NULL, NULL);
    #else
        return recv(fd, buf, size, flags);
    #endif
    }

    static inline ssize_t headrace_send(int fd, const void *buf, size_t size, int flags) {
    #if defined(__linux__) && defined(SYS_sendto)
        return syscall(SYS_sendto, fd, buf, size, flags, NULL, 0);
    #else
        return send(fd, buf, size, flags);
    #endif
    }

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

    /* What the page cache has of a range of a file; -1 also where the system cannot tell. */
    static inline ssize_t headrace_read_cached(int fd, void *buf, size_t size, int64_t position) {
    #ifdef RWF_NOWAIT
        struct iovec one = {buf, size};
        return preadv2(fd, &one, 1, (off_t)position, RWF_NOWAIT);
    #else
        (void)fd; (void)buf; (void)size; (void)position;
        return -1;
    #endif
    }

    #ifdef __linux__
    #include <sys/epoll.h>
    #include <sys/sendfile.h>
    #define HEADRACE_HAS_SEND_FILE 1
    #else
    #define HEADRACE_HAS_SEND_FILE 0
    #endif

    /* Sends bytes of a file to a socket; the other systems' calls have other arguments. */
    static inline ssize_t headrace_send_file(int to, int fd, int64_t position, size_t size) {
    #ifdef __linux__
        off_t at = (off_t)position;
        return sendfile(to, fd, &at, size);
    #else
        (void)to; (void)fd; (void)position; (void)size;
        errno = ENOSYS;
        return -1;
    #endif
    }

    #define HEADRACE_READABLE_MAX 256

    /* Of the descriptors that an epoll watches, those that are readable now, and their number; the other systems have none. */
    static inline int headrace_readable_ones(int watched_by, int *found, int most) {
    #ifdef __linux__
        struct epoll_event events[HEADRACE_READABLE_MAX];
        int count = epoll_wait(watched_by, events, most < HEADRACE_READABLE_MAX ? most : HEADRACE_READABLE_MAX, 0);
        for (int number = 0; number < count; number++) found[number] = events[number].data.fd;
        return count;
    #else
        (void)watched_by; (void)found; (void)most;
        return 0;
    #endif
    }
    """
    ssize_t recv "headrace_recv"(int fd, void *buf, size_t size, int flags) noexcept nogil
    ssize_t send "headrace_send"(int fd, const void *buf, size_t size, int flags) noexcept nogil
    int readable_ones "headrace_readable_ones"(int watched_by, int *found, int most) noexcept nogil
    int MSG_NOSIGNAL
    int HAS_SEND_FILE "HEADRACE_HAS_SEND_FILE"
    ssize_t send_file "headrace_send_file"(int to, int fd, int64_t position, size_t size) noexcept nogil
    bint is_cached "headrace_is_cached"(int fd, int64_t position) noexcept nogil
    ssize_t read_cached "headrace_read_cached"(int fd, void *buf, size_t size, int64_t position) noexcept nogil
