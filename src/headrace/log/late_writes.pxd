# Many pieces of memory, and the room behind them, in one write, for append_state.
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <sys/types.h>
    #include <sys/uio.h>
    #include <unistd.h>

    #define HEADRACE_PIECES_MAX 512
    #define HEADRACE_ZEROS_MAX (1 << 17) /* ROOM_BYTES */

    static const char headrace_zeros[HEADRACE_ZEROS_MAX];

    static ssize_t headrace_zeros_of(int64_t zeros) {
        return zeros < HEADRACE_ZEROS_MAX ? (ssize_t)zeros : HEADRACE_ZEROS_MAX;
    }

    /* Writes zeros behind the data. The number of bytes written, or -1. */
    static ssize_t headrace_write_with_zeros(
        int fd, const void *data, ssize_t size, int64_t position, int64_t zeros) {
    #ifdef __linux__
        struct iovec pieces[2] = {
            {(void *)data, (size_t)size}, {(void *)headrace_zeros, (size_t)headrace_zeros_of(zeros)}};
        return pwritev(fd, pieces, 2, (off_t)position);
    #else
        ssize_t more, written = pwrite(fd, data, (size_t)size, (off_t)position);
        if (written != size) return written;
        more = pwrite(fd, headrace_zeros, (size_t)headrace_zeros_of(zeros), (off_t)(position + size));
        return more > 0 ? written + more : written;
    #endif
    }

    /* Writes the pieces arena[starts[n]:ends[n]] of one slot behind each other, and zeros behind them. The number of
       bytes written, or -1 if some of the pieces were not. */
    static ssize_t headrace_write_pieces(
        int fd, const void *arena, const int64_t *starts, const int64_t *ends, const int64_t *slots, ssize_t count,
        int slot, int64_t position, int64_t zeros) {
        struct iovec pieces[HEADRACE_PIECES_MAX + 1];
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
            if (zeros > 0 && number == count) {
                pieces[used].iov_base = (void *)headrace_zeros;
                pieces[used++].iov_len = (size_t)headrace_zeros_of(zeros);
            }
            ssize_t written = used == 1 ? pwrite(fd, pieces[0].iov_base, size, (off_t)position)
                                        : pwritev(fd, pieces, used, (off_t)position);
            if (written < (ssize_t)size) return -1;
            if (number == count) return total + written;
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
    ssize_t write_with_zeros "headrace_write_with_zeros"(
        int fd, const void *data, ssize_t size, int64_t position, int64_t zeros) noexcept nogil
    ssize_t write_pieces "headrace_write_pieces"(
        int fd, const void *arena, const int64_t *starts, const int64_t *ends, const int64_t *slots, ssize_t count,
        int slot, int64_t position, int64_t zeros) noexcept nogil
