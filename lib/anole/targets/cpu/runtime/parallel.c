/* A thread pool for the parallel loops of kernels: threads claim chunks of a loop, and the caller also computes.
 *
 * Generated code calls `__TVMBackendParallelLaunch`, a pointer that TVM's loader would set to TVM's own thread pool. The
 * definition below has hidden visibility, so the loader does not find it. TVM's pool assigns each thread's share in
 * advance and waits for all threads; a thread that is not scheduled then costs a time slice in every kernel. In this
 * pool, the caller waits only for chunks that a worker has begun.
 *
 * One loop runs at a time. A thread that finds the pool in use, or that is itself within a loop, runs its loop alone.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef ANOLE_THREADS
#define ANOLE_THREADS 0 /* one per logical CPU */
#endif
#ifndef ANOLE_CHUNKS
#define ANOLE_CHUNKS 4 /* per thread: more chunks balance load from other processes better, but cost more claims */
#endif
#ifndef ANOLE_SPIN
#define ANOLE_SPIN 2000 /* pauses of an idle worker before it sleeps: longer than the time between two kernels */
#endif

#ifndef ANOLE_MOST_THREADS
#define ANOLE_MOST_THREADS 256 /* the maximum, even if ANOLE_NUM_THREADS is larger */
#endif

enum { MAX_THREADS = ANOLE_MOST_THREADS, MAX_CHUNKS = MAX_THREADS * ANOLE_CHUNKS };

/* TVM's interface of parallel loops. */
typedef struct {
  void* sync_handle;
  int32_t num_task;
} Environment;
typedef int (*Loop)(int chunk, Environment* environment, void* data);

/* Data that several threads write is alone in its cache line, against false sharing. */
#define CACHE_ALIGNED _Alignas(64)

/* One thread's chunks of the current loop: the next one (upper 16 bits) and the end (lower 16 bits). A claim is valid if it
 * is before the end; the loop is then not replaced until that chunk is done. */
typedef struct {
  CACHE_ALIGNED _Atomic uint32_t range;
} Share;

static struct {
  Share shares[MAX_THREADS];
  CACHE_ALIGNED _Atomic uint32_t loops; /* number of loops begun; idle workers poll it and sleep on it */
  Loop loop;
  void* data;
  Environment environment;
  CACHE_ALIGNED _Atomic uint32_t undone; /* unfinished chunks of the loop; the caller sleeps on it */
  _Atomic bool caller_sleeps;
  _Atomic int failure;
  CACHE_ALIGNED _Atomic uint32_t sleepers; /* workers that sleep, or are about to */
  _Atomic int caller_processor;    /* where sleeping workers must not wake, because the caller computes there */
  _Atomic bool ends;
  CACHE_ALIGNED pthread_mutex_t in_use; /* held by the caller of the loop that runs */
  _Atomic int threads;          /* including the caller; 0 before the first loop */
  cpu_set_t allowed;            /* the processors of the process */
  pthread_t workers[MAX_THREADS];
  _Atomic pid_t ids[MAX_THREADS];
} pool = {.in_use = PTHREAD_MUTEX_INITIALIZER, .caller_processor = -1};

/* In static TLS: an exiting thread must be able to access it without the loader's lock. */
static _Thread_local bool within_loop __attribute__((tls_model("initial-exec")));
static _Thread_local int thread_number __attribute__((tls_model("initial-exec"))); /* in its pool; a caller has 0 */

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void sleep_while(_Atomic uint32_t* word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t* word, int count) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0); }

static inline bool has_chunks(uint32_t range) { return range >> 16 < (range & 0xffff); }

/* Computes the remaining chunks of a thread's share. */
static void compute_share(Share* share) {
  while (has_chunks(atomic_load_explicit(&share->range, memory_order_relaxed))) {
    uint32_t claim = atomic_fetch_add_explicit(&share->range, 1 << 16, memory_order_acquire);
    if (!has_chunks(claim)) return;
    if (pool.loop((int)(claim >> 16), &pool.environment, pool.data)) atomic_store(&pool.failure, -1);
    if (atomic_fetch_sub(&pool.undone, 1) == 1 && atomic_load(&pool.caller_sleeps)) wake(&pool.undone, 1);
  }
}

/* Computes chunks of the current loop until none is left to claim: first the thread's own chunks, whose data may be cached. */
static void compute(int self, int threads) {
  for (int i = 0; i < threads; ++i) compute_share(&pool.shares[(self + i) % threads]);
}

/* Waits until all chunks are done. It sleeps soon, because a worker may need this processor to proceed. */
static void await_workers(void) {
  for (int n = 0; n < ANOLE_SPIN && atomic_load_explicit(&pool.undone, memory_order_acquire); ++n) pause_briefly();
  if (!atomic_load(&pool.undone)) return;
  atomic_store(&pool.caller_sleeps, true);
  for (uint32_t undone; (undone = atomic_load(&pool.undone)) != 0;) sleep_while(&pool.undone, undone);
  atomic_store(&pool.caller_sleeps, false);
}

/* Sets a thread's affinity to all processors but `avoided`, or to all if that is negative. */
static void place(pid_t thread, int avoided) {
  cpu_set_t processors = pool.allowed;
  if (avoided >= 0) CPU_CLR(avoided, &processors);
  sched_setaffinity(thread, sizeof processors, &processors);
}

/* Waits for the next loop, or until the pool ends; returns the number of loops begun.
 *
 * While a worker sleeps, its affinity excludes the caller's processor: the system would wake it there, queued after the
 * caller, and leave other processors idle. While it runs, it may move to any processor, to get away from other processes.
 */
static uint32_t await_loop(int self, uint32_t known) {
  uint32_t loops;
  for (int spins = 0; spins < ANOLE_SPIN; ++spins) {
    if ((loops = atomic_load_explicit(&pool.loops, memory_order_acquire)) != known) return loops;
    pause_briefly();
  }
  place(pool.ids[self], atomic_load(&pool.caller_processor));
  atomic_fetch_add(&pool.sleepers, 1);
  while ((loops = atomic_load(&pool.loops)) == known) sleep_while(&pool.loops, known);
  atomic_fetch_sub(&pool.sleepers, 1);
  place(pool.ids[self], -1);
  return loops;
}

static void* work(void* argument) {
  int self = (int)(intptr_t)argument;
  within_loop = true;
  thread_number = self;
  pthread_setname_np(pthread_self(), "anole-worker");
  atomic_store(&pool.ids[self], (pid_t)syscall(SYS_gettid));
  place(pool.ids[self], -1);
  for (uint32_t known = 0; !atomic_load(&pool.ends); known = await_loop(self, known)) compute(self, atomic_load(&pool.threads));
  return NULL;
}

/* Notifies workers of a new loop, or of the end, and wakes the sleeping workers. */
static void ring(void) {
  atomic_fetch_add(&pool.loops, 1);
  if (!atomic_load(&pool.sleepers)) return;
  int here = sched_getcpu(), threads = atomic_load(&pool.threads);
  if (here != atomic_load(&pool.caller_processor)) {
    atomic_store(&pool.caller_processor, here);
    for (int i = 1; i < threads; ++i)
      if (atomic_load(&pool.ids[i])) place(pool.ids[i], here);
  }
  wake(&pool.loops, INT_MAX);
}

/* Reads one or two numbers from a file; returns whether it succeeded. */
static bool read_numbers(const char* path, double* first, double* second) {
  FILE* file = fopen(path, "r");
  if (!file) return false;
  int n_read = second ? fscanf(file, "%lf %lf", first, second) : fscanf(file, "%lf", first);
  fclose(file);
  return n_read == (second ? 2 : 1);
}

/* Returns the number of processors that a control group may use at once; a large number if it has no limit.
 *
 * Version 2 of control groups has the quota and its period in one file, version 1 in two; `max` and -1 mean no limit.
 */
static double quota_of(const char* mount, const char* group) {
  char path[PATH_MAX + 64];
  double quota, period;
  snprintf(path, sizeof path, "%s%s/cpu.max", mount, group);
  if (!read_numbers(path, &quota, &period)) {
    snprintf(path, sizeof path, "%s%s/cpu.cfs_period_us", mount, group);
    if (!read_numbers(path, &period, NULL)) return 1e9;
    snprintf(path, sizeof path, "%s%s/cpu.cfs_quota_us", mount, group);
    if (!read_numbers(path, &quota, NULL)) return 1e9;
  }
  return quota > 0 && period > 0 ? quota / period : 1e9;
}

/* Returns the smallest quota of the process's control groups and their ancestors. */
static double quota(void) {
  char line[PATH_MAX];
  double minimum = 1e9;
  FILE* file = fopen("/proc/self/cgroup", "r");
  if (!file) return minimum;
  while (fgets(line, sizeof line, file)) {
    char* controllers = strchr(line, ':');
    char* group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) continue;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    bool version_1 = !strncmp(controllers, ":cpu,", 5) || !strcmp(controllers, ":cpu");
    if (!version_1 && strcmp(controllers, ":")) continue;
    for (char* end;; *end = 0) {
      double limit = quota_of(version_1 ? "/sys/fs/cgroup/cpu" : "/sys/fs/cgroup", group);
      if (limit < minimum) minimum = limit;
      if (!(end = strrchr(group, '/'))) break;
    }
  }
  fclose(file);
  return minimum;
}

/* Returns the number of threads to use: as many as compiled for, but at most one per processor. */
static int count_threads(void) {
  const char* wanted = getenv("ANOLE_NUM_THREADS");
  int threads = wanted ? atoi(wanted) : 0;
  if (threads <= 0) {
    int processors = CPU_COUNT(&pool.allowed);
    double shares = quota();
    threads = ANOLE_THREADS > 0 && ANOLE_THREADS < processors ? ANOLE_THREADS : processors;
    if (shares < threads) threads = shares > 1 ? (int)shares : 1;
  }
  return threads < MAX_THREADS ? threads : MAX_THREADS;
}

/* Resets the pool in a forked child process, which has no workers. */
static void forget(void) {
  pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
  pool.in_use = unlocked;
  pool.threads = 0;
  for (int i = 0; i < MAX_THREADS; ++i) atomic_store(&pool.shares[i].range, 0);
  atomic_store(&pool.sleepers, 0);
  atomic_store(&pool.ends, false);
  within_loop = false;
}

/* Returns the processors that any thread of the process may use; the calling thread may be bound to one of them. */
static cpu_set_t processors(void) {
  cpu_set_t all, of_thread;
  CPU_ZERO(&all);
  DIR* threads = opendir("/proc/self/task");
  for (struct dirent* thread; threads && (thread = readdir(threads));) {
    int id = atoi(thread->d_name);
    if (id > 0 && !sched_getaffinity(id, sizeof of_thread, &of_thread)) CPU_OR(&all, &all, &of_thread);
  }
  if (threads) closedir(threads);
  if (!CPU_COUNT(&all)) CPU_SET(0, &all);
  return all;
}

/* Starts the workers, or fewer if the system cannot create more threads. */
static void start(void) {
  pool.allowed = processors();
  int wanted = count_threads();
  pool.threads = 1;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int i = 1; i < wanted; ++i) {
    atomic_store(&pool.ids[i], 0);
    if (pthread_create(&pool.workers[i], NULL, work, (void*)(intptr_t)i)) break;
    atomic_store(&pool.threads, i + 1);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Runs all chunks in the calling thread. */
static int run_alone(Loop loop, void* data, int chunks) {
  Environment environment = {NULL, chunks};
  int failure = 0;
  for (int chunk = 0; chunk < chunks && !failure; ++chunk) failure = loop(chunk, &environment, data);
  return failure;
}

/* Runs a parallel loop of a kernel.
 *
 * `chunks` is 0 if the kernel leaves their number to the pool. Returns 0, or the result of a failed chunk.
 */
static int launch(Loop loop, void* data, int chunks) {
  if (within_loop || pthread_mutex_trylock(&pool.in_use)) return run_alone(loop, data, chunks ? chunks : 1);
  if (!pool.threads) start();
  int threads = pool.threads;
  if (threads == 1 || chunks > MAX_CHUNKS) {
    pthread_mutex_unlock(&pool.in_use);
    return run_alone(loop, data, chunks ? chunks : 1);
  }
  if (!chunks) chunks = threads * ANOLE_CHUNKS;
  within_loop = true;
  pool.loop = loop;
  pool.data = data;
  pool.environment.num_task = chunks;
  atomic_store_explicit(&pool.failure, 0, memory_order_relaxed);
  atomic_store_explicit(&pool.undone, (uint32_t)chunks, memory_order_relaxed);
  for (int i = 0; i < threads; ++i) {
    uint32_t begin = (uint32_t)(chunks * i / threads), end = (uint32_t)(chunks * (i + 1) / threads);
    atomic_store_explicit(&pool.shares[i].range, begin << 16 | end, memory_order_release);
  }
  ring();
  compute(0, threads);
  await_workers();
  within_loop = false;
  int failure = atomic_load_explicit(&pool.failure, memory_order_relaxed);
  pthread_mutex_unlock(&pool.in_use);
  return failure;
}

__attribute__((constructor)) static void begin(void) { pthread_atfork(NULL, NULL, forget); }

/* Ends the workers when the library is unloaded or the process ends. */
__attribute__((destructor)) static void end(void) {
  if (within_loop) return;
  pthread_mutex_lock(&pool.in_use);
  atomic_store(&pool.ends, true);
  ring();
  for (int i = 1; i < pool.threads; ++i) pthread_join(pool.workers[i], NULL);
  pool.threads = 0;
}

/* The pointer that generated code calls; it is a weak symbol there, and this definition overrides it. */
extern int (*const __TVMBackendParallelLaunch)(Loop, void*, int);
__attribute__((visibility("hidden"))) int (*const __TVMBackendParallelLaunch)(Loop, void*, int) = launch;
