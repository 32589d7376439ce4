/* Uses an exported library in one of several ways, chosen by name, and prints results for tests. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "network.h"

enum { RUNS = 20, THREADS = 3 };

#ifdef COUNT_ALLOCATIONS

/* Replaces the system's functions, for all libraries of the program. */
static _Atomic long allocations;

#define COUNTED(name, parameters, arguments) \
  extern void* __libc_##name parameters;     \
  void* name parameters {                    \
    ++allocations;                           \
    return __libc_##name arguments;          \
  }

COUNTED(malloc, (size_t bytes), (bytes))
COUNTED(calloc, (size_t count, size_t bytes), (count, bytes))
COUNTED(realloc, (void* old, size_t bytes), (old, bytes))
COUNTED(memalign, (size_t alignment, size_t bytes), (alignment, bytes))
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** made, size_t alignment, size_t bytes) { return !(*made = memalign(alignment, bytes)); }

#else
static long allocations;
#endif

typedef struct {
  _Alignas(64) unsigned char input[NETWORK_INPUT_0_BYTES + 64];
  _Alignas(64) unsigned char first[NETWORK_OUTPUT_0_BYTES + 64];
  _Alignas(64) unsigned char second[NETWORK_OUTPUT_1_BYTES + 64];
} buffers;

static buffers given;
static const char* weights;

/* Runs an instance on the given input; data begins `shift` bytes after an aligned address. */
static network_error run(network_instance* instance, buffers* own, size_t shift) {
  network_input inputs[] = {{own->input + shift, NETWORK_INPUT_0_BYTES}};
  network_output outputs[] = {{own->first + shift, NETWORK_OUTPUT_0_BYTES}, {own->second + shift, NETWORK_OUTPUT_1_BYTES}};
  if (own != &given) memcpy(own->input + shift, given.input, NETWORK_INPUT_0_BYTES);
  return network_run(instance, inputs, outputs);
}

static network_instance* create(void) {
  network_instance* instance;
  network_settings settings = {.weights = weights};
  network_error error = network_create(&instance, &settings);
  if (!error) return instance;
  printf("%s\n", network_error_text(error));
  exit(3);
}

/* Writes the outputs of one run. */
static int write_outputs(size_t shift) {
  static buffers own;
  network_instance* instance = create();
  if (run(instance, &own, shift)) return 1;
  fwrite(own.first + shift, 1, NETWORK_OUTPUT_0_BYTES, stdout);
  fwrite(own.second + shift, 1, NETWORK_OUTPUT_1_BYTES, stdout);
  network_destroy(instance);
  return 0;
}

static long count_different(const buffers* own) {
  return memcmp(own->first, given.first, NETWORK_OUTPUT_0_BYTES) || memcmp(own->second, given.second, NETWORK_OUTPUT_1_BYTES);
}

static void* run_own(void* unused) {
  (void)unused;
  static _Thread_local buffers own;
  network_instance* instance = create();
  long different = 0;
  for (int i = 0; i < RUNS; ++i) different += run(instance, &own, 0) || count_different(&own);
  network_destroy(instance);
  return (void*)different;
}

/* Runs several instances, each in a separate thread, and prints the number of runs with different outputs. */
static int run_threads(void) {
  network_instance* instance = create();
  if (run(instance, &given, 0)) return 1;
  pthread_t threads[THREADS];
  long different = 0;
  for (int i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, run_own, NULL);
  for (int i = 0; i < THREADS; ++i) {
    void* found;
    pthread_join(threads[i], &found);
    different += (long)found;
  }
  network_destroy(instance);
  printf("%s %ld\n", network_level(NULL), different);
  return 0;
}

static _Atomic int busy, others;

/* Runs an instance that another thread runs, too, until it has often succeeded and one of them was rejected. */
static void* run_shared(void* instance) {
  static _Thread_local buffers own;
  int succeeded = 0;
  for (long i = 0; i < 1000000 && !others && (succeeded < RUNS || !busy); ++i) {
    network_error error = run(instance, &own, 0);
    if (error == NETWORK_ERROR_BUSY)
      busy = 1;
    else if (error || count_different(&own))
      others = 1;
    else
      succeeded++;
  }
  return NULL;
}

/* Prints whether one of two threads that run one instance is rejected, and whether there is another error. */
static int share_instance(void) {
  network_instance* instance = create();
  if (run(instance, &given, 0)) return 1;
  pthread_t thread;
  pthread_create(&thread, NULL, run_shared, instance);
  run_shared(instance);
  pthread_join(thread, NULL);
  network_destroy(instance);
  printf("%d %d\n", busy, others);
  return 0;
}

/* Prints the number of allocations after an instance was created. */
static int count_allocations(void) {
  network_instance* instance = create();
  long before = allocations;
  static buffers own;
  int failed = run(instance, &given, 0) || run(instance, &own, 4);
  long after = allocations;
  network_destroy(instance);
  printf("%d %ld\n", before > 0, after - before);
  return failed;
}

static void say(network_error error) { printf("%d %s\n", error, network_error_text(error)); }

/* Prints the error of each wrong call. */
static int make_errors(void) {
  enum { ARENA = NETWORK_ARENA_BYTES, IN = NETWORK_INPUT_0_BYTES };
  enum { FIRST = NETWORK_OUTPUT_0_BYTES, SECOND = NETWORK_OUTPUT_1_BYTES };
  static _Alignas(64) char arena[ARENA + 64];
  network_instance* instance = NULL;
  const network_settings settings[] = {
      {.weights = "/nowhere/network.weights"},
      {.weights = "/"},
      {.weights = weights, .level = "x86-64-v9"},
      {.weights = weights, .arena = arena, .arena_bytes = ARENA - 1},
      {.weights = weights, .arena = arena + 1, .arena_bytes = ARENA},
      {.weights = weights, .arena = arena, .arena_bytes = ARENA},
  };
  say(network_create(NULL, NULL));
  say(network_create(&instance, NULL));
  for (size_t i = 0; i < sizeof settings / sizeof *settings; ++i) {
    if (instance) return 1;
    say(network_create(&instance, &settings[i]));
  }
  const network_input input = {given.input, IN};
  const network_output first = {given.first, FIRST}, second = {given.second, SECOND};
  const struct {
    network_input input;
    network_output outputs[2];
  } runs[] = {
      {{NULL, IN}, {first, second}},
      {{given.input, IN - 1}, {first, second}},
      {input, {first, {given.second, SECOND + 1}}},
      {input, {first, {given.first + FIRST - 1, SECOND}}},
      {input, {first, {given.input, SECOND}}},
      {input, {first, second}},
  };
  say(network_run(NULL, &input, runs[0].outputs));
  say(network_run(instance, NULL, runs[0].outputs));
  say(network_run(instance, &input, NULL));
  for (size_t i = 0; i < sizeof runs / sizeof *runs; ++i) say(network_run(instance, &runs[i].input, runs[i].outputs));
  network_destroy(instance);
  network_destroy(NULL);
  say((network_error)-1);
  say((network_error)99);
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  weights = argv[2];
  if (fread(given.input, 1, NETWORK_INPUT_0_BYTES, stdin) != NETWORK_INPUT_0_BYTES) return 2;
  if (!strcmp(argv[1], "outputs")) return write_outputs(0);
  if (!strcmp(argv[1], "outputs-not-aligned")) return write_outputs(4);
  if (!strcmp(argv[1], "threads")) return run_threads();
  if (!strcmp(argv[1], "one instance")) return share_instance();
  if (!strcmp(argv[1], "allocations")) return count_allocations();
  if (!strcmp(argv[1], "errors")) return make_errors();
  return 2;
}
