# Many pieces of memory in one write, for append_state.
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <sys/types.h>
    #include <sys/uio.h>
    #include <unistd.h>

    #define HEADRACE_PIECES_MAX 512

    /* Writes the pieces arena[starts[n]:ends[n]] of one slot behind each other. The number of bytes written, or -1. */
    static ssize_t headrace_write_pieces(
        int fd, const void *arena, const int64_t *starts, const int64_t *ends, const int64_t *slots, ssize_t count,
        int slot, int64_t position) {
        struct iovec pieces[HEADRACE_PIECES_MAX];
        ssize_t total = 0, number = 0;
        for (;;) {
            int used = 0;
            size_t size = 0;
            for (; number < count && used < HEADRACE_PIECES_MAX; number++) {
                char *at = (char *)arena + starts[number];
                size_t length = (size_t)(ends[number] - starts[number]);
                if (slots[number] != slot) continue;
                size += length;
                if (used && (char *)pieces[used - 1].iov_base + pieces[used - 1].iov_len == at) {
                    pieces[used - 1].iov_len += length;
                    continue;
                }
                pieces[used].iov_base = at;
                pieces[used++].iov_len = length;
            }
            if (!used) return total;
    #ifdef __linux__
            ssize_t written = used == 1 ? pwrite(fd, pieces[0].iov_base, size, (off_t)position)
                                        : pwritev(fd, pieces, used, (off_t)position);
            if (written != (ssize_t)size) return -1;
    #else
            int64_t to = position;
            for (int each = 0; each < used; each++) {
                ssize_t written = pwrite(fd, pieces[each].iov_base, pieces[each].iov_len, (off_t)to);
                if (written != (ssize_t)pieces[each].iov_len) return -1;
                to += written;
            }
    #endif
            position += (int64_t)size;
            total += (ssize_t)size;
        }
    }
    """
    ssize_t write_pieces "headrace_write_pieces"(
        int fd, const void *arena, const int64_t *starts, const int64_t *ends, const int64_t *slots, ssize_t count,
        int slot, int64_t position) noexcept nogil
