/// Makes one system call of a process fail, or kills the process there.
///
/// Loaded with LD_PRELOAD. Calls of one name on files in one folder are numbered from 1, in the order
/// in which they are made; the one with the chosen number meets the fault. What it meets is appended
/// to a log, so that a run that never came so far is not taken for one that passed. Without a name,
/// every call is logged.
///
///     gcc -shared -fPIC -O2 -o fault_shim.so fault_shim.c
///     FAULT_FOLDER=/tmp/x FAULT_LOG=/tmp/log FAULT_CALL=pwrite FAULT_NUMBER=17 FAULT_KIND=torn …

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind {
  NONE,
  BEFORE,  // killed before the call
  AFTER,   // killed after the call
  TORN,    // killed when half is written
  FAIL_EIO,
  FAIL_EINTR,
  FAIL_ENOSPC,  // a write takes half, and what follows fails
  SHORT,        // a read or write takes one byte
};

static const char *const kind_names[] = {
    "none", "before", "after", "torn", "EIO", "EINTR", "ENOSPC", "short",
};

enum { MAX_FILES = 1024 };

static const char *folder;
static size_t folder_length;
static int log_file = -1;
static const char *chosen_call;
static long chosen_number;
static enum kind chosen_kind;
static atomic_long calls;
static atomic_bool disk_is_full;
static atomic_bool is_watched[MAX_FILES];

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void start(void) {
  const char *kind = getenv("FAULT_KIND"), *number = getenv("FAULT_NUMBER");
  const char *log = getenv("FAULT_LOG");
  folder = getenv("FAULT_FOLDER");
  folder_length = folder ? strlen(folder) : 0;
  chosen_call = getenv("FAULT_CALL");
  chosen_number = number ? atol(number) : 0;
  for (int i = 0; kind && i < (int)(sizeof kind_names / sizeof *kind_names); i++)
    if (!strcmp(kind, kind_names[i])) chosen_kind = i;
  if (log) log_file = REAL(open)(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static bool path_is_watched(const char *path) {
  return folder && path && !strncmp(path, folder, folder_length);
}

static bool file_is_watched(int file) {
  return file >= 0 && file < MAX_FILES && atomic_load(&is_watched[file]);
}

static void note(const char *call, long number, enum kind kind) {
  char line[128];
  int length = snprintf(line, sizeof line, "%s %ld %s\n", call, number, kind_names[kind]);
  if (log_file >= 0 && REAL(write)(log_file, line, length) != length) abort();
}

enum transfer { WHOLE_ONLY, READS, WRITES };

/// Counts a call, and says what it meets.
static enum kind meet(const char *call, enum transfer transfer) {
  if (chosen_call && strcmp(call, chosen_call)) return NONE;
  long number = atomic_fetch_add(&calls, 1) + 1;
  if (!chosen_call) note(call, number, NONE);
  if (!chosen_call || number != chosen_number) return NONE;
  if (chosen_kind == TORN && transfer != WRITES) return NONE;
  if (chosen_kind == SHORT && transfer == WHOLE_ONLY) return NONE;
  note(call, number, chosen_kind);
  return chosen_kind;
}

static _Noreturn void die(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

static long fail(int number) {
  errno = number;
  return -1;
}

/// Meets a fault, or makes the call, for calls that do all or nothing.
#define WHOLE(name, call)                     \
  do {                                        \
    enum kind kind = meet(name, WHOLE_ONLY);  \
    if (kind == BEFORE) die();                \
    if (kind == FAIL_EIO) return fail(EIO);       \
    if (kind == FAIL_EINTR) return fail(EINTR);   \
    if (kind == FAIL_ENOSPC) return fail(ENOSPC); \
    __typeof__(call) result = (call);         \
    if (kind == AFTER) die();                 \
    return result;                            \
  } while (0)

static int open_file(const char *path, int flags, mode_t mode) {
  WHOLE("open", REAL(open)(path, flags, mode));
}

int open(const char *path, int flags, ...) {
  mode_t mode = 0;
  if (flags & (O_CREAT | O_TMPFILE)) {
    va_list list;
    va_start(list, flags);
    mode = va_arg(list, mode_t);
    va_end(list);
  }
  if (!path_is_watched(path)) return REAL(open)(path, flags, mode);
  int file = open_file(path, flags, mode);
  if (file >= 0 && file < MAX_FILES) atomic_store(&is_watched[file], true);
  return file;
}

int close(int file) {
  if (!file_is_watched(file)) return REAL(close)(file);
  atomic_store(&is_watched[file], false);
  enum kind kind = meet("close", WHOLE_ONLY);
  if (kind == BEFORE) die();
  int result = REAL(close)(file);
  if (kind == AFTER) die();
  // Linux has closed the file whatever it answers.
  return kind == FAIL_EIO ? fail(EIO) : kind == FAIL_EINTR ? fail(EINTR) : result;
}

static ssize_t write_some(int file, const void *bytes, size_t count, off_t offset) {
  __typeof__(&pwrite) really = REAL(pwrite);
  enum kind kind = meet("pwrite", WRITES);
  if (atomic_load(&disk_is_full)) {
    atomic_store(&disk_is_full, false);
    return fail(ENOSPC);
  }
  ssize_t result;
  switch (kind) {
    case BEFORE: die();
    case TORN:
      result = really(file, bytes, count / 2, offset);
      if (result < 0) note("no tear", errno, kind);
      die();
    case FAIL_EIO: return fail(EIO);
    case FAIL_EINTR: return fail(EINTR);
    case FAIL_ENOSPC:
      if (count < 2) return fail(ENOSPC);
      atomic_store(&disk_is_full, true);
      return really(file, bytes, count / 2, offset);
    case SHORT: return really(file, bytes, 1, offset);
    case AFTER:
      result = really(file, bytes, count, offset);
      if (result < 0) note("no write", errno, kind);
      die();
    default: return really(file, bytes, count, offset);
  }
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) {
  if (!file_is_watched(file)) return REAL(pwrite)(file, bytes, count, offset);
  return write_some(file, bytes, count, offset);
}

ssize_t pread(int file, void *bytes, size_t count, off_t offset) {
  if (!file_is_watched(file)) return REAL(pread)(file, bytes, count, offset);
  enum kind kind = meet("pread", READS);
  if (kind == BEFORE) die();
  if (kind == FAIL_EIO) return fail(EIO);
  if (kind == FAIL_EINTR) return fail(EINTR);
  ssize_t result = REAL(pread)(file, bytes, kind == SHORT && count ? 1 : count, offset);
  if (kind == AFTER) die();
  return result;
}

int ftruncate(int file, off_t size) {
  if (!file_is_watched(file)) return REAL(ftruncate)(file, size);
  WHOLE("ftruncate", REAL(ftruncate)(file, size));
}

int fsync(int file) {
  if (!file_is_watched(file)) return REAL(fsync)(file);
  WHOLE("fsync", REAL(fsync)(file));
}

int fdatasync(int file) {
  if (!file_is_watched(file)) return REAL(fdatasync)(file);
  WHOLE("fdatasync", REAL(fdatasync)(file));
}

int flock(int file, int operation) {
  if (!file_is_watched(file)) return REAL(flock)(file, operation);
  WHOLE(operation & LOCK_UN ? "unlock" : "lock", REAL(flock)(file, operation));
}

int fstat(int file, struct stat *status) {
  if (!file_is_watched(file)) return REAL(fstat)(file, status);
  WHOLE("fstat", REAL(fstat)(file, status));
}

int lstat(const char *path, struct stat *status) {
  if (!path_is_watched(path)) return REAL(lstat)(path, status);
  WHOLE("lstat", REAL(lstat)(path, status));
}

int rename(const char *path, const char *other) {
  if (!path_is_watched(path)) return REAL(rename)(path, other);
  WHOLE("rename", REAL(rename)(path, other));
}

int unlink(const char *path) {
  if (!path_is_watched(path)) return REAL(unlink)(path);
  WHOLE("unlink", REAL(unlink)(path));
}

// The same calls under the names that a program has which was built for large files.
int open64(const char *, int, ...) __attribute__((alias("open")));
ssize_t pwrite64(int, const void *, size_t, off_t) __attribute__((alias("pwrite")));
ssize_t pread64(int, void *, size_t, off_t) __attribute__((alias("pread")));
int ftruncate64(int, off_t) __attribute__((alias("ftruncate")));
