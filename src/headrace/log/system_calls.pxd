# Several system calls as one call, for disk_calls.
cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <string.h>
    #include <sys/stat.h>
    #include <sys/types.h>
    #include <unistd.h>

    #ifdef __linux__
    #define headrace_fdatasync fdatasync
    #else
    #define headrace_fdatasync fsync
    #endif

    /* The place of the first of the files that could not be synced, with errno in `code`; -1 for none. */
    static ssize_t headrace_sync_files(const int *fds, ssize_t count, int *code) {
        for (ssize_t place = 0; place < count; place++) {
            while (headrace_fdatasync(fds[place])) {
                if (errno == EINTR) continue;
                *code = errno;
                return place;
            }
        }
        return -1;
    }

    static int headrace_open(const char *path, int flags) {
        int fd;
        do fd = open(path, flags | O_CLOEXEC, 0644); while (fd < 0 && errno == EINTR);
        return fd;
    }

    /* 0, errno of the refused open, or minus errno of the failed sync. */
    static int headrace_sync_directory(const char *path) {
        int code = 0, fd = headrace_open(path, O_RDONLY | O_DIRECTORY);
        if (fd < 0) return errno;
        int failed = headrace_sync_files(&fd, 1, &code) < 0 ? 0 : -code;
        close(fd);
        return failed;
    }

    /* Removes the files whose paths follow each other, each with a zero behind it. errno of each in `codes`, or 0. */
    static void headrace_remove_files(const char *path, int *codes, ssize_t count) {
        for (ssize_t place = 0; place < count; place++) {
            codes[place] = unlink(path) && errno != ENOENT ? errno : 0;
            path += strlen(path) + 1;
        }
    }

    /* Creates or empties a file, and extends it with a hole if its device is one of these, which are known to have
       holes. -1 once that is done, also without space for it; the open file if its device is not known; -2 after an
       error, with errno in `code`. */
    static int headrace_make_hole(
        const char *path, long long size, const unsigned long long *devices, ssize_t count, int *code) {
        struct stat status;
        int fd = headrace_open(path, O_RDWR | O_CREAT | O_TRUNC);
        if (fd < 0) {
            *code = errno;
            return -2;
        }
        if (!fstat(fd, &status))
            for (ssize_t number = 0; number < count; number++)
                if (devices[number] == (unsigned long long)status.st_dev) {
                    if (ftruncate(fd, (off_t)size)) {}
                    close(fd);
                    return -1;
                }
        return fd;
    }
    """
    ssize_t run_sync_files "headrace_sync_files"(const int *fds, ssize_t count, int *code) noexcept nogil
    int run_sync_directory "headrace_sync_directory"(const char *path) noexcept nogil
    void run_remove_files "headrace_remove_files"(const char *paths, int *codes, ssize_t count) noexcept nogil
    int run_make_hole "headrace_make_hole"(
        const char *path, long long size, const unsigned long long *devices, ssize_t count, int *code) noexcept nogil
