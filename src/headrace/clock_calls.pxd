# The clocks of `clocks` and `time`, for compiled code that reads them without the interpreter.
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>

    static inline int64_t headrace_wall_clock_ms(void) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }

    static inline int64_t headrace_monotonic_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    """
    int64_t wall_ms "headrace_wall_clock_ms"() noexcept nogil
    int64_t monotonic "headrace_monotonic_ns"() noexcept nogil
