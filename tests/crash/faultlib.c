/* Fails system calls on files of one directory: preloaded into a process that uses a store there.
 *
 *   FAULT_ROOT    only paths below this directory, and descriptors of such files
 *   FAULT_CALLS   names of calls, separated by commas: open, pread, pwrite, ftruncate, fallocate, sync, mmap,
 *                 rename, unlink, link
 *   FAULT_ERRNOS  numbers, separated by commas; one is taken for each failure
 *   FAULT_SHARE   one call in so many fails, by chance
 *   FAULT_NTH     or: the n-th such call fails, and no other
 *   FAULT_SEED    of the chance
 *   FAULT_FLAG    a file; faults happen while it exists
 *
 * What failed is not done: a failing call returns before the real one. Any thread.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static unsigned long long state;
static long counted;
static int prepared;
static const char *root, *calls, *flag;
static long share, nth;
static int errnos[16], errno_count;

static void prepare(void) {
    const char *text;
    prepared = 1;
    root = getenv("FAULT_ROOT");
    calls = getenv("FAULT_CALLS");
    flag = getenv("FAULT_FLAG");
    text = getenv("FAULT_SHARE");
    share = text ? atol(text) : 0;
    text = getenv("FAULT_NTH");
    nth = text ? atol(text) : 0;
    text = getenv("FAULT_SEED");
    state = 0x9E3779B97F4A7C15ull + (text ? strtoull(text, NULL, 10) : 0);
    text = getenv("FAULT_ERRNOS");
    while (text && *text && errno_count < 16) {
        char *end;
        errnos[errno_count++] = (int)strtol(text, &end, 10);
        text = *end == ',' ? end + 1 : end;
        if (end == text && *end) break;
    }
}

static unsigned long long chance(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int is_named(const char *call) {
    size_t length = strlen(call);
    const char *at = calls;
    while (at && *at) {
        const char *end = strchrnul(at, ',');
        if ((size_t)(end - at) == length && strncmp(at, call, length) == 0) return 1;
        at = *end ? end + 1 : end;
    }
    return 0;
}

static int is_below(const char *path) {
    size_t length = strlen(root);
    return strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int is_ours(int fd) {
    char name[64], path[4096];
    ssize_t length;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    length = readlink(name, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

/* The error that this call is to fail with; 0 if it may go on. */
static int fault(const char *call, const char *path, int fd) {
    int error = 0, before = errno;
    pthread_mutex_lock(&turn);
    if (!prepared) prepare();
    if (root && errno_count && is_named(call) && (!flag || access(flag, F_OK) == 0)
        && (path ? is_below(path) : is_ours(fd))) {
        counted++;
        if (nth ? counted == nth : share > 0 && chance() % (unsigned long long)share == 0)
            error = errnos[chance() % (unsigned long long)errno_count];
    }
    pthread_mutex_unlock(&turn);
    errno = before;
    return error;
}

#define REAL(type, name, arguments) \
    static type(*real) arguments; \
    if (!real) real = (type(*) arguments)dlsym(RTLD_NEXT, name)

#define FAIL_IF(call, path, fd, failed) \
    do { int error = fault(call, path, fd); if (error) { errno = error; return failed; } } while (0)

static mode_t mode_of(int flags, va_list more) {
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; mode_t mode; \
        REAL(int, #name, (const char *, int, ...)); \
        va_start(more, flags); mode = mode_of(flags, more); va_end(more); \
        FAIL_IF("open", path, -1, -1); \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int directory, const char *path, int flags, ...) { \
        va_list more; mode_t mode; \
        REAL(int, #name, (int, const char *, int, ...)); \
        va_start(more, flags); mode = mode_of(flags, more); va_end(more); \
        FAIL_IF("open", path, -1, -1); \
        return real(directory, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define PREAD(name) \
    ssize_t name(int fd, void *data, size_t count, off_t at) { \
        REAL(ssize_t, #name, (int, void *, size_t, off_t)); \
        FAIL_IF("pread", NULL, fd, -1); \
        return real(fd, data, count, at); \
    }
PREAD(pread)
PREAD(pread64)

#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t count, off_t at) { \
        REAL(ssize_t, #name, (int, const void *, size_t, off_t)); \
        FAIL_IF("pwrite", NULL, fd, -1); \
        return real(fd, data, count, at); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define FTRUNCATE(name) \
    int name(int fd, off_t size) { \
        REAL(int, #name, (int, off_t)); \
        FAIL_IF("ftruncate", NULL, fd, -1); \
        return real(fd, size); \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

/* This one returns its error and leaves errno alone. */
#define FALLOCATE(name) \
    int name(int fd, off_t at, off_t count) { \
        int error; \
        REAL(int, #name, (int, off_t, off_t)); \
        error = fault("fallocate", NULL, fd); \
        return error ? error : real(fd, at, count); \
    }
FALLOCATE(posix_fallocate)
FALLOCATE(posix_fallocate64)

#define SYNC(name) \
    int name(int fd) { \
        REAL(int, #name, (int)); \
        FAIL_IF("sync", NULL, fd, -1); \
        return real(fd); \
    }
SYNC(fsync)
SYNC(fdatasync)

#define MMAP(name) \
    void *name(void *at, size_t size, int protection, int flags, int fd, off_t start) { \
        REAL(void *, #name, (void *, size_t, int, int, int, off_t)); \
        if (fd >= 0) FAIL_IF("mmap", NULL, fd, MAP_FAILED); \
        return real(at, size, protection, flags, fd, start); \
    }
MMAP(mmap)
MMAP(mmap64)

int rename(const char *old, const char *new) {
    REAL(int, "rename", (const char *, const char *));
    FAIL_IF("rename", new, -1, -1);
    return real(old, new);
}

int renameat(int from, const char *old, int to, const char *new) {
    REAL(int, "renameat", (int, const char *, int, const char *));
    FAIL_IF("rename", new, -1, -1);
    return real(from, old, to, new);
}

int unlink(const char *path) {
    REAL(int, "unlink", (const char *));
    FAIL_IF("unlink", path, -1, -1);
    return real(path);
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
    REAL(int, "linkat", (int, const char *, int, const char *, int));
    FAIL_IF("link", new, -1, -1);
    return real(from, old, to, new, flags);
}
