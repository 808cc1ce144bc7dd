// Loaded before a process's own libraries (LD_PRELOAD): a disk that is slow, full or broken below one folder, a process that dies in the
// middle of writing there, and a wall clock that jumps. It is controlled by a shared page that the test writes while the process runs
// (shim.py); calls on the folder are logged in a journal, so that the test can do what a power cut would: drop what was not synced.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct page {
  int64_t clock_offset_s;  // added to the wall clock
  int64_t only_odd;        // .. of processes with odd pids only: a skew
  int64_t fsync_delay_ms;  // below the folder
  int64_t error;           // errno of everything that would change the folder; 0: none
  int64_t kill_at;         // the call on the folder before which the process dies; 0: none
  int64_t calls;           // so far
  int64_t slept;           // delays that were made
  char folder[456];        // empty: no folder
};
static volatile struct page* page;
static int journal = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void start(void) {
  const char* path = getenv("CHAOS_SHIM");
  if (!path) return;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return;
  void* at = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  if (at == MAP_FAILED) return;
  page = at;
  char name[512];
  snprintf(name, sizeof name, "%s.journal", path);
  journal = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (journal >= 0) {  // a high number, for processes that count their descriptors
    int high = fcntl(journal, F_DUPFD_CLOEXEC, 200);
    if (high >= 0) syscall(SYS_close, journal), journal = high;
  }
}

static int inside(const char* path) {
  if (!page || !path || !page->folder[0]) return 0;
  return strncmp(path, (const char*)page->folder, strlen((const char*)page->folder)) == 0;
}
static const char* name_of(int fd, char* name) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, name, 500);
  name[n < 0 ? 0 : n] = 0;
  return name;
}
static void note(const char* what, const char* a, const char* b) {
  char line[1200];
  int n = snprintf(line, sizeof line, "%s\t%s\t%s\n", what, a, b);
  if (n > (int)sizeof line - 1) n = (int)sizeof line - 1;
  if (journal >= 0) syscall(SYS_write, journal, line, (size_t)n);
}
// The path of a name in a folder that is open, as openat() takes it.
static const char* path_at(int folder, const char* name, char* path) {
  if (folder == AT_FDCWD || name[0] == '/') return name;
  name_of(folder, path);
  size_t used = strlen(path);
  snprintf(path + used, 1000 - used, "/%s", name);
  return path;
}
// Called before every call that changes the folder. True: it fails.
static int fails(void) {
  int64_t call = __atomic_add_fetch((int64_t*)&page->calls, 1, __ATOMIC_SEQ_CST);
  if (page->kill_at && call == page->kill_at) {
    note("killed", "", "");
    syscall(SYS_kill, getpid(), SIGKILL);
  }
  if (page->error) errno = (int)page->error;
  return page->error != 0;
}

static int opened(int folder, const char* name, int flags, mode_t mode) {
  char space[1000];
  const char* path = path_at(folder, name, space);
  if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) && inside(path)) {
    if (fails()) return -1;
    note("create", path, "");
  }
  return (int)syscall(SYS_openat, folder, name, flags, mode);
}
int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
  va_end(more);
  return opened(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* name, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
  va_end(more);
  return opened(folder, name, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
  va_end(more);
  return open(path, flags, mode);
}
int mkdirat(int folder, const char* name, mode_t mode) {
  char space[1000];
  const char* path = path_at(folder, name, space);
  if (inside(path)) {
    if (fails()) return -1;
    note("mkdir", path, "");
  }
  return (int)syscall(SYS_mkdirat, folder, name, mode);
}
int mkdir(const char* path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
ssize_t write(int fd, const void* bytes, size_t count) {
  char name[512];
  if (page && page->folder[0] && fd > 2 && inside(name_of(fd, name))) {
    if (fails()) return -1;
    note("write", name, "");
  }
  return (ssize_t)syscall(SYS_write, fd, bytes, count);
}
static int synced(int fd, int number) {
  char name[512];
  int here = page && page->folder[0] && inside(name_of(fd, name));
  if (here && fails()) return -1;
  if (here && page->fsync_delay_ms > 0) {
    __atomic_add_fetch((int64_t*)&page->slept, 1, __ATOMIC_SEQ_CST);
    for (int64_t left = page->fsync_delay_ms; left > 0 && page->fsync_delay_ms > 0; left -= 20) {
      struct timespec slice = {0, 20 * 1000 * 1000};
      nanosleep(&slice, NULL);
    }
  }
  int done = (int)syscall(number, fd);
  if (here && done == 0) note("sync", name, "");
  return done;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) {
  char space_a[1000], space_b[1000];
  const char *path = path_at(a, from, space_a), *path_to = path_at(b, to, space_b);
  const int here = inside(path);
  if (here && fails()) return -1;
  int done = (int)syscall(SYS_renameat2, a, from, b, to, flags);
  if (done == 0 && here) note(flags & RENAME_EXCHANGE ? "exchange" : "rename", path, path_to);
  return done;
}
int renameat(int a, const char* from, int b, const char* to) { return renameat2(a, from, b, to, 0); }
int rename(const char* from, const char* to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
int unlinkat(int folder, const char* name, int flags) {
  char space[1000];
  if (inside(path_at(folder, name, space)) && fails()) return -1;
  return (int)syscall(SYS_unlinkat, folder, name, flags);
}
int unlink(const char* path) { return unlinkat(AT_FDCWD, path, 0); }

static int64_t offset(void) { return page && !(page->only_odd && getpid() % 2 == 0) ? page->clock_offset_s : 0; }
int clock_gettime(clockid_t clock, struct timespec* now) {
  static __typeof__(&clock_gettime) real;
  if (!real) real = REAL(clock_gettime);
  int done = real(clock, now);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += offset();
  return done;
}
int gettimeofday(struct timeval* now, void* zone) {
  int done = REAL(gettimeofday)(now, zone);
  now->tv_sec += offset();
  return done;
}
time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
