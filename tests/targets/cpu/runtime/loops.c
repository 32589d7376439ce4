/* Parallel loops like those of generated code, for the tests of parallel.c. */
#include "parallel.c"

typedef struct {
  int64_t extent;
  _Atomic int32_t* visits;
  int nested, slow_us, fails_at;
} Range;

/* Visits the iterations of a chunk, which are divided as in generated code. */
static int visit(int chunk, Environment* environment, void* data) {
  Range* range = data;
  int64_t step = (range->extent + environment->num_task - 1) / environment->num_task;
  int64_t end = (chunk + 1) * step < range->extent ? (chunk + 1) * step : range->extent;
  for (int64_t i = chunk * step; i < end; ++i) {
    if (range->nested) {
      Range inner = {range->nested, range->visits + i * range->nested, 0, 0, -1};
      if (__TVMBackendParallelLaunch(visit, &inner, 0)) return -1;
    } else {
      atomic_fetch_add(&range->visits[i], 1);
    }
    if (range->slow_us) usleep((useconds_t)range->slow_us);
    if (i == range->fails_at) return -1;
  }
  return 0;
}

int run(int64_t extent, int32_t* visits, int chunks, int nested, int slow_us, int fails_at) {
  Range range = {extent, (_Atomic int32_t*)visits, nested, slow_us, fails_at};
  return __TVMBackendParallelLaunch(visit, &range, chunks);
}

int threads(void) { return pool.threads; }

#ifdef STRESS
/* A caller that starts loops concurrently with others, with pauses that let workers sleep. */
static void* call_often(void* argument) {
  int64_t extent = 1 + (intptr_t)argument * 37;
  int32_t* visits = calloc((size_t)extent, sizeof *visits);
  for (int turn = 1; turn <= 2000; ++turn) {
    if (run(extent, visits, 0, 0, 0, -1)) abort();
    if (turn % 500 == 0) usleep(3000);
    for (int64_t i = 0; i < extent; ++i)
      if (visits[i] != turn) abort();
  }
  free(visits);
  return NULL;
}

int main(void) {
  pthread_t callers[4];
  for (intptr_t i = 0; i < 4; ++i) pthread_create(&callers[i], NULL, call_often, (void*)i);
  for (int i = 0; i < 4; ++i) pthread_join(callers[i], NULL);
  return 0;
}
#endif
