/* Interposes the C library's file calls: counts the calls below one folder, makes one of them fail, and records all.

   Built as a shared object and loaded with LD_PRELOAD. Does nothing until `shim_arm` sets a folder. Files are never
   really synced, because the machine does not lose power during a test. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NO_FAULT, FAIL, CUT_SHORT, FAIL_HALFWAY, KILL, KILL_HALFWAY };
enum { FILES = 4096 };

static char folder[PATH_MAX];
static size_t folder_length;
static char *paths[FILES]; /* of the open files below the folder, by descriptor */
static long calls;         /* below the folder so far */
static long chosen;        /* the number of the call that fails, from 1; 0 for none */
static int fault, fault_errno, lasting;
static int record = -1; /* descriptor of the file that all calls are recorded in */

void shim_arm(const char *below, long number, int kind, int error, int forever, const char *into) {
    snprintf(folder, sizeof folder, "%s", below);
    folder_length = strlen(folder);
    calls = 0, chosen = number, fault = kind, fault_errno = error, lasting = forever;
    record = into ? (int)syscall(SYS_openat, AT_FDCWD, into, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
}

static void put(const void *data, size_t size) {
    for (const char *at = data; size > 0;) {
        long written = syscall(SYS_write, record, at, size);
        if (written <= 0) _exit(99);
        at += written, size -= (size_t)written;
    }
}

/* One entry: call, inode, offset, and the lengths of the path and of the data, which follow. */
static void note(const char *call, unsigned long inode, long offset, const char *path, const void *data, size_t size) {
    if (record < 0) return;
    char head[128];
    int length = snprintf(head, sizeof head, "%s %lu %ld %zu %zu\n", call, inode, offset, strlen(path), size);
    put(head, (size_t)length), put(path, strlen(path)), put(data, size);
}

void shim_note(const char *text) { note("note", 0, 0, "", text, strlen(text)); }

static int below(const char *path, char *absolute) {
    if (folder_length == 0) return 0;
    char cwd[PATH_MAX / 2];
    if (path[0] == '/') snprintf(absolute, PATH_MAX, "%s", path);
    else snprintf(absolute, PATH_MAX, "%s/%s", getcwd(cwd, sizeof cwd) ? cwd : "", path);
    return strncmp(absolute, folder, folder_length) == 0 && (absolute[folder_length] == '/' || !absolute[folder_length]);
}

static const char *path_of(int descriptor) {
    return descriptor >= 0 && descriptor < FILES && folder_length ? paths[descriptor] : NULL;
}

static unsigned long inode_of(int descriptor) {
    struct stat found;
    return syscall(SYS_fstat, descriptor, &found) == 0 ? found.st_ino : 0;
}

static unsigned long inode_at(const char *path) {
    struct stat found;
    return syscall(SYS_newfstatat, AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) == 0 ? found.st_ino : 0;
}

/* Counts a call, and returns its fault. Calls that only read have no separate halfway fault. */
static int meet(const char *call, const char *path) {
    calls++;
    int met = chosen && (calls == chosen || (lasting && calls > chosen)) ? fault : NO_FAULT;
    char text[32];
    snprintf(text, sizeof text, "%ld %d", calls, met);
    char name[32];
    snprintf(name, sizeof name, "?%s", call);
    note(name, 0, calls, path, text, strlen(text));
    if (met == KILL) syscall(SYS_kill, getpid(), SIGKILL);
    return met;
}

static int fails(const char *call, const char *path) {
    int met = meet(call, path);
    return met == FAIL || met == FAIL_HALFWAY;
}

#define FAILED (errno = fault_errno, -1)

static long transfer(long number, const char *call, int descriptor, void *data, size_t size, long offset) {
    const char *path = path_of(descriptor);
    int positioned = number == SYS_pwrite64 || number == SYS_pread64;
    int writes = number == SYS_pwrite64 || number == SYS_write;
    int met = path ? meet(call, path) : NO_FAULT;
    if (met == FAIL) return FAILED;
    if (met != NO_FAULT && size > 1) size /= 2;
    long start = !path || positioned ? offset : syscall(SYS_lseek, descriptor, 0, SEEK_CUR);
    long done = positioned ? syscall(number, descriptor, data, size, offset) : syscall(number, descriptor, data, size);
    if (path && writes && done > 0) note("write", inode_of(descriptor), start, path, data, (size_t)done);
    if (met == KILL_HALFWAY) syscall(SYS_kill, getpid(), SIGKILL);
    return met == FAIL_HALFWAY ? FAILED : done;
}

ssize_t write(int descriptor, const void *data, size_t size) {
    return transfer(SYS_write, "write", descriptor, (void *)data, size, 0);
}
ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset) {
    return transfer(SYS_pwrite64, "pwrite", descriptor, (void *)data, size, offset);
}
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset) {
    return transfer(SYS_pwrite64, "pwrite", descriptor, (void *)data, size, offset);
}
ssize_t read(int descriptor, void *data, size_t size) {
    return transfer(SYS_read, "read", descriptor, data, size, 0);
}
ssize_t pread64(int descriptor, void *data, size_t size, off64_t offset) {
    return transfer(SYS_pread64, "pread", descriptor, data, size, offset);
}
ssize_t pread(int descriptor, void *data, size_t size, off_t offset) {
    return transfer(SYS_pread64, "pread", descriptor, data, size, offset);
}

static int opened(int at, const char *path, int flags, int mode) {
    char absolute[PATH_MAX];
    int ours = at == AT_FDCWD && below(path, absolute);
    unsigned long before = 0;
    if (ours) {
        if (fails("open", absolute)) return FAILED;
        before = inode_at(absolute);
    }
    int descriptor = (int)syscall(SYS_openat, at, path, flags, mode);
    if (!ours || descriptor < 0 || descriptor >= FILES) return descriptor;
    free(paths[descriptor]);
    paths[descriptor] = strdup(absolute);
    if (!before) note("create", inode_of(descriptor), 0, absolute, "", 0);
    if (before && flags & O_TRUNC) note("truncate", before, 0, absolute, "", 0);
    return descriptor;
}

#define OPEN(name, at, ...)                                               \
    int name(__VA_ARGS__, ...) {                                          \
        va_list rest;                                                     \
        va_start(rest, flags);                                            \
        int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, int) : 0; \
        va_end(rest);                                                     \
        return opened(at, path, flags, mode);                             \
    }
OPEN(open, AT_FDCWD, const char *path, int flags)
OPEN(open64, AT_FDCWD, const char *path, int flags)
OPEN(openat, at, int at, const char *path, int flags)
OPEN(openat64, at, int at, const char *path, int flags)

/* The descriptor is closed even if the call fails. */
int close(int descriptor) {
    const char *path = path_of(descriptor);
    int failing = path && fails("close", path);
    if (path) {
        free(paths[descriptor]);
        paths[descriptor] = NULL;
    }
    int result = (int)syscall(SYS_close, descriptor);
    return failing ? FAILED : result;
}

static int synced(const char *call, long number, int descriptor) {
    const char *path = path_of(descriptor);
    if (!path) return (int)syscall(number, descriptor);
    if (fails(call, path)) return FAILED;
    note("sync", inode_of(descriptor), 0, path, "", 0);
    return 0;
}
int fsync(int descriptor) { return synced("fsync", SYS_fsync, descriptor); }
int fdatasync(int descriptor) { return synced("fdatasync", SYS_fdatasync, descriptor); }

int ftruncate64(int descriptor, off64_t size) {
    const char *path = path_of(descriptor);
    if (path && fails("ftruncate", path)) return FAILED;
    int result = (int)syscall(SYS_ftruncate, descriptor, size);
    if (path && result == 0) note("truncate", inode_of(descriptor), size, path, "", 0);
    return result;
}
int ftruncate(int descriptor, off_t size) { return ftruncate64(descriptor, size); }

int flock(int descriptor, int operation) {
    const char *path = path_of(descriptor);
    if (path && fails("flock", path)) return FAILED;
    return (int)syscall(SYS_flock, descriptor, operation);
}

int rename(const char *from, const char *to) {
    char source[PATH_MAX], target[PATH_MAX];
    int ours = below(from, source) && below(to, target);
    if (ours && fails("rename", source)) return FAILED;
    unsigned long inode = ours ? inode_at(source) : 0;
    int result = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (ours && result == 0) note("rename", inode, 0, source, target, strlen(target));
    return result;
}
int renameat(int from_at, const char *from, int to_at, const char *to) {
    if (from_at == AT_FDCWD && to_at == AT_FDCWD) return rename(from, to);
    return (int)syscall(SYS_renameat2, from_at, from, to_at, to, 0);
}

int link(const char *from, const char *to) {
    char source[PATH_MAX], target[PATH_MAX];
    int ours = below(from, source) && below(to, target);
    if (ours && fails("link", source)) return FAILED;
    int result = (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (ours && result == 0) note("link", inode_at(target), 0, source, target, strlen(target));
    return result;
}

int unlink(const char *path) {
    char absolute[PATH_MAX];
    int ours = below(path, absolute);
    if (ours && fails("unlink", absolute)) return FAILED;
    unsigned long inode = ours ? inode_at(absolute) : 0;
    int result = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (ours && result == 0) note("unlink", inode, 0, absolute, "", 0);
    return result;
}

int mkdir(const char *path, mode_t mode) {
    char absolute[PATH_MAX];
    int ours = below(path, absolute);
    if (ours && fails("mkdir", absolute)) return FAILED;
    int result = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    if (ours && result == 0) note("mkdir", inode_at(absolute), 0, absolute, "", 0);
    return result;
}

int chmod(const char *path, mode_t mode) {
    char absolute[PATH_MAX];
    if (below(path, absolute) && fails("chmod", absolute)) return FAILED;
    return (int)syscall(SYS_fchmodat, AT_FDCWD, path, mode);
}
int fchmod(int descriptor, mode_t mode) {
    const char *path = path_of(descriptor);
    if (path && fails("chmod", path)) return FAILED;
    return (int)syscall(SYS_fchmod, descriptor, mode);
}
