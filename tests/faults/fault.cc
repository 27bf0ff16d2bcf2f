// Preloaded into the program by faults_test.py: one call of the C library, from main on, fails, as it does on a full or
// broken disk, without memory, or when another process changes a file or the clock.
//   ROPEWALK_FAULT=CALL:N:ERRNO   the N-th call (from 1) of CALL fails with errno ERRNO. CALL: open, read, write, fsync,
//                                 rename, mmap, ftruncate, flock, mkdir, malloc. "write:N:short" writes half
//   ROPEWALK_FAULT=shrink:N:0     behind the N-th mmap of a file, this file is cut to nothing
//   ROPEWALK_FAULT=clock:N:0      from the N-th reading of a clock on, the wall clock is an hour earlier
//   ROPEWALK_FAULT_COUNTS=FILE    gets the number of calls of each, in the order above: native int64_t, then of sites,
//                                 who asked (256 bytes), numbers of calls of malloc that each came from another place
//                                 (ROPEWALK_FAULT_SITES=1)
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

enum Call {
  kOpen,
  kRead,
  kWrite,
  kFsync,
  kRename,
  kMmap,
  kFtruncate,
  kFlock,
  kMkdir,
  kMalloc,
  kShrink,
  kClock,
  kCalls
};
constexpr std::array<const char*, kCalls> kNames = {"open",   "read",   "write",     "fsync",
                                                    "rename", "mmap",   "ftruncate", "flock",
                                                    "mkdir",  "malloc", "shrink",    "clock"};
constexpr int64_t kMostSites = 1 << 16;

struct Counts {
  std::atomic<int64_t> calls[kCalls];
  std::atomic<int64_t> sites;
  char asking
      [256];  // of a failing call: the program or library that made it, libstdc++ and libc left out
  int64_t first[kMostSites];
};

Counts g_own, *g_counts = &g_own;
bool g_ready = false, g_find_sites = false;
int g_call = -1, g_errno = 0;
int64_t g_number = 0;
bool g_short = false;
thread_local bool t_inside = false;
std::atomic<uint64_t> g_seen[4 * kMostSites];  // a hash table of stacks

template <class F>
F Real(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void Start() {
  if (const char* path = getenv("ROPEWALK_FAULT_COUNTS")) {
    const int fd = static_cast<int>(
        Real<int (*)(const char*, int, ...)>("open")(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
    if (fd < 0 || Real<int (*)(int, off_t)>("ftruncate")(fd, sizeof(Counts)) != 0) abort();
    void* at = Real<void* (*)(void*, size_t, int, int, int, off_t)>("mmap")(
        nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) abort();
    g_counts = static_cast<Counts*>(at);
    close(fd);
  }
  g_find_sites = getenv("ROPEWALK_FAULT_SITES") != nullptr;
  if (const char* fault = getenv("ROPEWALK_FAULT")) {
    for (int i = 0; i < kCalls; ++i) {
      const size_t n = strlen(kNames[i]);
      if (strncmp(fault, kNames[i], n) != 0 || fault[n] != ':') continue;
      char* end = nullptr;
      g_number = strtoll(fault + n + 1, &end, 10);
      g_short = strcmp(end, ":short") == 0;
      g_errno = g_short ? 0 : atoi(end + 1);
      g_call = i;
    }
    if (g_call < 0) abort();
  }
}

int (*g_main)(int, char**, char**);

// Before main nobody could say what failed: GNU's C++ library ends the process by SIGABRT, CUDA's runtime by SIGSEGV.
int Main(int count, char** arguments, char** environment) {
  g_ready = true;
  return g_main(count, arguments, environment);
}

_Unwind_Reason_Code FindAsking(_Unwind_Context* context, void* own) {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(_Unwind_GetIP(context)), &info) == 0 ||
      info.dli_fname == nullptr)
    return _URC_NO_REASON;
  for (const char* below : {static_cast<const char*>(own), "libstdc++", "libc.so", "libgcc_s"}) {
    if (strstr(info.dli_fname, below) != nullptr) return _URC_NO_REASON;
  }
  strncpy(g_counts->asking, info.dli_fname, sizeof(g_counts->asking) - 1);
  return _URC_END_OF_STACK;
}

void NoteAsking() {
  t_inside = true;
  Dl_info own;
  if (dladdr(reinterpret_cast<void*>(&NoteAsking), &own) != 0) {
    _Unwind_Backtrace(FindAsking, const_cast<char*>(own.dli_fname));
  }
  t_inside = false;
}

// Whether this call is the one that fails.
bool Fails(Call call) {
  if (!g_ready || t_inside) return false;
  const int64_t number = ++g_counts->calls[call];
  if (call != g_call || number != g_number) return false;
  NoteAsking();
  errno = g_errno;
  return true;
}

_Unwind_Reason_Code AddFrame(_Unwind_Context* context, void* hash) {
  auto& h = *static_cast<uint64_t*>(hash);
  h = (h ^ _Unwind_GetIP(context)) * 0x9E3779B97F4A7C15u;
  h ^= h >> 29;
  return _URC_NO_REASON;
}

// Notes calls that come from a place that none before came from.
void NoteSite(int64_t number) {
  t_inside = true;
  uint64_t hash = 1;
  _Unwind_Backtrace(AddFrame, &hash);
  if (hash == 0) hash = 1;
  constexpr size_t kSlots = sizeof(g_seen) / sizeof(g_seen[0]);
  for (size_t slot = hash % kSlots;; slot = (slot + 1) % kSlots) {
    uint64_t there = 0;
    if (g_seen[slot].compare_exchange_strong(there, hash)) {
      const int64_t index = g_counts->sites++;
      if (index < kMostSites) g_counts->first[index] = number;
      break;
    }
    if (there == hash || g_counts->sites >= kMostSites) break;
  }
  t_inside = false;
}

bool FailsMalloc() {
  if (!g_ready || t_inside) return false;
  const bool fails = Fails(kMalloc);
  if (g_find_sites) NoteSite(g_counts->calls[kMalloc]);
  return fails;
}

int OpenAt(int folder, const char* path, int flags, mode_t mode) {
  static const auto real = Real<int (*)(int, const char*, int, ...)>("openat");
  return Fails(kOpen) ? -1 : real(folder, path, flags, mode);
}

void* Map(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  static const auto real = Real<void* (*)(void*, size_t, int, int, int, off_t)>("mmap");
  if (fd < 0) return real(at, bytes, protection, flags, fd, offset);
  if (Fails(kMmap)) return MAP_FAILED;
  void* mapped = real(at, bytes, protection, flags, fd, offset);
  if (mapped != MAP_FAILED && Fails(kShrink)) {
    std::array<char, 32> name{};
    strcpy(name.data(), "/proc/self/fd/");
    int digits = 1;
    for (int rest = fd; rest >= 10; rest /= 10) ++digits;
    for (int i = digits, rest = fd; i > 0; --i, rest /= 10)
      name[13 + static_cast<size_t>(i)] = static_cast<char>('0' + rest % 10);
    if (truncate(name.data(), 0) != 0) abort();
  }
  return mapped;
}

mode_t ModeOf(int flags, va_list& more) {
  return (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
}

}  // namespace

extern "C" {

int __libc_start_main(int (*main)(int, char**, char**), int count, char** arguments, void (*init)(),
                      void (*fini)(), void (*loader_fini)(), void* stack_end) {
  g_main = main;
  return Real<decltype(&__libc_start_main)>("__libc_start_main")(Main, count, arguments, init, fini,
                                                                 loader_fini, stack_end);
}

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = ModeOf(flags, more);
  va_end(more);
  return OpenAt(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = ModeOf(flags, more);
  va_end(more);
  return OpenAt(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
FILE* fopen(const char* path, const char* mode) {
  static const auto real = Real<FILE* (*)(const char*, const char*)>("fopen");
  return Fails(kOpen) ? nullptr : real(path, mode);
}
FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }
ssize_t read(int fd, void* data, size_t bytes) {
  static const auto real = Real<ssize_t (*)(int, void*, size_t)>("read");
  return Fails(kRead) ? -1 : real(fd, data, bytes);
}
ssize_t pread(int fd, void* data, size_t bytes, off_t at) {
  static const auto real = Real<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  return Fails(kRead) ? -1 : real(fd, data, bytes, at);
}
ssize_t pread64(int fd, void* data, size_t bytes, off_t at) { return pread(fd, data, bytes, at); }
ssize_t write(int fd, const void* data, size_t bytes) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t)>("write");
  if (!Fails(kWrite)) return real(fd, data, bytes);
  return g_short ? real(fd, data, bytes / 2) : -1;
}
int fsync(int fd) {
  static const auto real = Real<int (*)(int)>("fsync");
  return Fails(kFsync) ? -1 : real(fd);
}
int rename(const char* from, const char* to) {
  static const auto real = Real<int (*)(const char*, const char*)>("rename");
  return Fails(kRename) ? -1 : real(from, to);
}
void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return Map(at, bytes, protection, flags, fd, offset);
}
void* mmap64(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return Map(at, bytes, protection, flags, fd, offset);
}
int ftruncate(int fd, off_t bytes) {
  static const auto real = Real<int (*)(int, off_t)>("ftruncate");
  return Fails(kFtruncate) ? -1 : real(fd, bytes);
}
int ftruncate64(int fd, off_t bytes) { return ftruncate(fd, bytes); }
int flock(int fd, int operation) {
  static const auto real = Real<int (*)(int, int)>("flock");
  return Fails(kFlock) ? -1 : real(fd, operation);
}
int mkdir(const char* path, mode_t mode) {
  static const auto real = Real<int (*)(const char*, mode_t)>("mkdir");
  return Fails(kMkdir) ? -1 : real(path, mode);
}
// The steady clock runs a thousand times as fast: what is timed in front of a sweep takes no time.
int clock_gettime(clockid_t clock, struct timespec* time) {
  static const auto real = Real<int (*)(clockid_t, struct timespec*)>("clock_gettime");
  const int done = real(clock, time);
  Fails(kClock);
  if (clock == CLOCK_MONOTONIC) {
    const int64_t nanoseconds = (time->tv_sec % 100'000) * 1'000'000'000 + time->tv_nsec;
    time->tv_sec = nanoseconds / 1'000'000;
    time->tv_nsec = nanoseconds % 1'000'000 * 1000;
  } else if (g_call == kClock && g_counts->calls[kClock] >= g_number) {
    time->tv_sec -= 3600;
  }
  return done;
}

// glibc's own names: dlsym itself may ask for memory.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* data, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) { return FailsMalloc() ? nullptr : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) {
  return FailsMalloc() ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* data, size_t bytes) {
  return FailsMalloc() ? nullptr : __libc_realloc(data, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  return FailsMalloc() ? nullptr : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  void* data = memalign(alignment, bytes);
  if (data == nullptr) return ENOMEM;
  *out = data;
  return 0;
}

}  // extern "C"
