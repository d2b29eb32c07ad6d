// The parts of Apple's C library that the package uses, as the clang importer is to see them.
//
// Each group names the manual page, or the header of the open sources (github.com/apple-oss-distributions),
// that its prototypes and numbers are from. A header that does not say which pointers may be null is
// imported with implicitly unwrapped ones, so the groups without `assume_nonnull` have to stay so.

#include <stddef.h>
#include <stdint.h>

#define __noasync(why) __attribute__((swift_attr("@_unavailableFromAsync(message: \"" why "\")")))

// XNU, bsd/sys/_types.h and bsd/arm/_types.h
typedef int32_t dev_t;
typedef uint32_t gid_t;
typedef uint64_t ino_t;
typedef uint16_t mode_t;
typedef uint16_t nlink_t;
typedef int64_t off_t;
typedef int32_t pid_t;
typedef uint32_t sigset_t;
typedef uint32_t socklen_t;
typedef long ssize_t;
typedef long time_t;
typedef uint32_t uid_t;

// XNU, bsd/sys/errno.h; man 2 intro
#define ENOENT 2
#define ESRCH 3
#define EINTR 4
#define EIO 5
#define ENXIO 6
#define EBADF 9
#define ENOMEM 12
#define EACCES 13
#define EEXIST 17
#define ENOTDIR 20
#define EISDIR 21
#define EINVAL 22
#define ENFILE 23
#define EMFILE 24
#define ENOTTY 25
#define EFBIG 27
#define ENOSPC 28
#define EROFS 30
#define EPIPE 32
#define EAGAIN 35
#define EWOULDBLOCK EAGAIN
#define ENOTSUP 45
#define ELOOP 62
#define EDQUOT 69

// XNU, bsd/sys/fcntl.h; man 2 open, man 2 fcntl. (The functions are in the overlay.)
#define O_RDONLY 0x0000
#define O_WRONLY 0x0001
#define O_RDWR 0x0002
#define O_NONBLOCK 0x00000004
#define O_APPEND 0x00000008
#define O_NOFOLLOW 0x00000100
#define O_CREAT 0x00000200
#define O_TRUNC 0x00000400
#define O_EXCL 0x00000800
#define O_DIRECTORY 0x00100000
#define O_CLOEXEC 0x01000000
#define F_GETFD 1
#define F_SETFD 2
#define F_GETFL 3
#define F_SETFL 4
#define FD_CLOEXEC 1
#define F_FULLFSYNC 51
#define F_GETPROTECTIONCLASS 63
#define F_SETPROTECTIONCLASS 64

// man 2 flock
#define LOCK_SH 0x01
#define LOCK_EX 0x02
#define LOCK_NB 0x04
#define LOCK_UN 0x08
int flock(int, int);

// XNU, bsd/sys/stat.h; man 2 stat, man 2 chmod, man 2 mkfifo
struct timespec {
  time_t tv_sec;
  long tv_nsec;
};
struct stat {
  dev_t st_dev;
  mode_t st_mode;
  nlink_t st_nlink;
  ino_t st_ino;
  uid_t st_uid;
  gid_t st_gid;
  dev_t st_rdev;
  struct timespec st_atimespec;
  struct timespec st_mtimespec;
  struct timespec st_ctimespec;
  struct timespec st_birthtimespec;
  off_t st_size;
  int64_t st_blocks;
  int32_t st_blksize;
  uint32_t st_flags;
  uint32_t st_gen;
};
int fchmod(int, mode_t);
int fstat(int, struct stat *);
int lstat(const char *, struct stat *);
int mkfifo(const char *, mode_t);
int stat(const char *, struct stat *);
mode_t umask(mode_t);

// Libc, include/unistd.h; the manual pages of the same names
#define STDIN_FILENO 0
#define STDOUT_FILENO 1
#define STDERR_FILENO 2
void _exit(int) __attribute__((noreturn));
int close(int);
int dup(int);
int dup2(int, int);
int fchown(int, uid_t, gid_t);
int fsync(int);
int ftruncate(int, off_t);
uid_t geteuid(void);
pid_t getpid(void);
int gethostname(char *, size_t);
int isatty(int);
int link(const char *, const char *);
int pipe(int[2]);
ssize_t pread(int, void *, size_t, off_t);
ssize_t pwrite(int, const void *, size_t, off_t);
ssize_t read(int, void *, size_t);
int symlink(const char *, const char *);
int unlink(const char *);
ssize_t write(int, const void *, size_t);

// man 2 rename, man 2 wait, man 3 realpath, man 3 malloc, man 3 exit, man 3 getenv
int rename(const char *, const char *);
pid_t waitpid(pid_t, int *, int);
char *realpath(const char *restrict, char *restrict);
void free(void *);
void exit(int) __attribute__((noreturn));
char *getenv(const char *);
int setenv(const char *, const char *, int);

// man 3 memchr, man 3 strdup, man 3 strerror
void *memchr(const void *, int, size_t);
char *strdup(const char *);
char *strerror(int);

// Libc, include/limits.h and XNU, bsd/sys/syslimits.h
#define PIPE_BUF 512

// XNU, bsd/sys/poll.h; man 2 poll
typedef unsigned int nfds_t;
struct pollfd {
  int fd;
  short events;
  short revents;
};
#define POLLIN 0x0001
#define POLLOUT 0x0004
#define POLLERR 0x0008
#define POLLHUP 0x0010
#define POLLNVAL 0x0020
int poll(struct pollfd *, nfds_t, int);

// XNU, bsd/sys/ttycom.h
struct winsize {
  unsigned short ws_row;
  unsigned short ws_col;
  unsigned short ws_xpixel;
  unsigned short ws_ypixel;
};

// XNU, bsd/sys/signal.h; man 3 sigsetops, man 2 kill, man 2 sigaction
#define SIGHUP 1
#define SIGINT 2
#define SIGILL 4
#define SIGTRAP 5
#define SIGABRT 6
#define SIGFPE 8
#define SIGKILL 9
#define SIGBUS 10
#define SIGSEGV 11
#define SIGSYS 12
#define SIGPIPE 13
#define SIGALRM 14
#define SIGTERM 15
#define SIGSTOP 17
#define SIGCONT 19
#define SIGCHLD 20
#define SIGXFSZ 25
#define SIGUSR1 30
#define SIG_BLOCK 1
#define SIG_UNBLOCK 2
#define SIG_SETMASK 3
typedef void (*sig_t)(int);
int kill(pid_t, int);
int raise(int);
int sigaddset(sigset_t *, int);
int sigdelset(sigset_t *, int);
int sigemptyset(sigset_t *);
int sigfillset(sigset_t *);
int sigismember(const sigset_t *, int);
sig_t signal(int, sig_t);

struct __siginfo;

union __sigaction_u {
  void (*_Nullable __sa_handler)(int);
  void (*_Nullable __sa_sigaction)(int, struct __siginfo *, void *);
};

struct sigaction {
  union __sigaction_u __sigaction_u;
  sigset_t sa_mask;
  int sa_flags;
};

int sigaction(int, const struct sigaction *_Nullable, struct sigaction *_Nullable);

// XNU, bsd/sys/socket.h and bsd/sys/un.h; man 2 socket and the pages of the same names
#define AF_UNIX 1
#define SOCK_STREAM 1
#define SHUT_RD 0
#define SHUT_WR 1
#define SHUT_RDWR 2
#define SOL_SOCKET 0xffff
#define SO_NOSIGPIPE 0x1022
typedef uint8_t sa_family_t;
struct sockaddr {
  uint8_t sa_len;
  sa_family_t sa_family;
  char sa_data[14];
};
struct sockaddr_un {
  unsigned char sun_len;
  sa_family_t sun_family;
  char sun_path[104];
};
int accept(int, struct sockaddr *restrict, socklen_t *restrict);
int bind(int, const struct sockaddr *, socklen_t);
int connect(int, const struct sockaddr *, socklen_t);
int listen(int, int);
ssize_t recv(int, void *, size_t, int);
ssize_t send(int, const void *, size_t, int);
int setsockopt(int, int, int, const void *, socklen_t);
int shutdown(int, int);
int socket(int, int, int);
int socketpair(int, int, int, int *);

// man 3 dlopen, man 3 dlsym
#define RTLD_NOW 0x2
void *dlopen(const char *, int);
void *dlsym(void *, const char *);

// libpthread, include/sched.h
int sched_yield(void);

// libpthread, include/pthread/pthread.h; man 3 pthread and the pages of the same names
#pragma clang assume_nonnull begin
typedef struct _opaque_pthread_t *pthread_t;
struct _opaque_pthread_t {
  long __sig;
  char __opaque[8176];
};
typedef struct {
  long __sig;
  char __opaque[56];
} pthread_attr_t;
typedef unsigned long pthread_key_t;
int pthread_atfork(void (*_Nullable)(void), void (*_Nullable)(void), void (*_Nullable)(void));
int pthread_create(
  pthread_t _Nullable *_Nonnull restrict, const pthread_attr_t *_Nullable restrict,
  void *_Nullable (*_Nonnull)(void *_Nullable), void *_Nullable restrict);
int pthread_detach(pthread_t);
void *_Nullable pthread_getspecific(pthread_key_t) __noasync("Use Task Local Values instead");
int pthread_join(pthread_t, void *_Nullable *_Nullable)
  __noasync("Use an asynchronous wait instead of a synchronous wait");
int pthread_key_create(pthread_key_t *, void (*_Nullable)(void *));
int pthread_kill(pthread_t, int);
pthread_t pthread_self(void);
int pthread_setspecific(pthread_key_t, const void *_Nullable)
  __noasync("Use Task Local Values instead");
int pthread_sigmask(int, const sigset_t *_Nullable, sigset_t *_Nullable);
#pragma clang assume_nonnull end
