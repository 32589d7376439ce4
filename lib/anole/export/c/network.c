/* Runs the network: its kernels in order, on memory that was planned when it was exported.
 *
 * An instance is at the beginning of its arena. After it are the intermediate tensors, space for unaligned inputs and
 * outputs, and the workspaces of kernels: one for code outside parallel loops, and one for each thread within them.
 */
#define _GNU_SOURCE
#include "api.h"

#include <stdatomic.h>

#include "parallel.c"
#include "plan.h"
#include "processor.h"
#include "weights.h"

/* The memory that contains a tensor: the caller's, the weights, or the arena. */
enum place { INPUT, OUTPUT, WEIGHTS, BUFFER };

typedef struct {
  uint8_t place, type, bits, rank;
  uint32_t first_extent;
  uint64_t position; /* number of the input or output, else an offset in bytes */
} tensor_row;

typedef struct {
  uint32_t kernel, first_argument, arguments;
} step_row;

typedef struct {
  uint64_t tensor, offset; /* number of the tensor, and offset of the copy in the arena if data is not aligned */
} caller_row;

typedef struct {
  uint32_t tensor, output;
} copy_row;

typedef struct {
  int64_t smallest, largest;
} range_row;

static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t floormod(int64_t a, int64_t b) { return (a % b + b) % b; }
static inline int64_t floordiv(int64_t a, int64_t b) { return (a - floormod(a, b)) / b; }

/* Arguments below TENSORS are the numbers of tensors; from TENSORS on, of ranges, whose sizes are passed to kernels. */
#include "tables.h"

#define STATIC_THREAD_LOCAL static _Thread_local __attribute__((tls_model("initial-exec")))

struct network_instance {
  const kernel* kernels;
  const char* level;
  weights weights;
  char* arena;
  int owns_arena;
  atomic_flag is_running;
  kernel_tensor tensors[TENSORS + 1];
  kernel_argument arguments[ARGUMENTS + 1];
  int64_t sizes[NETWORK_RANGES + 1];
  int64_t extents[EXTENTS + 1];
};

_Static_assert(sizeof(struct network_instance) <= INSTANCE_BYTES, "the arena has too little space for the instance");
_Static_assert(MOST_THREADS == NETWORK_THREADS, "the arena has space for a different number of threads");

/* The free workspace of the kernel that this thread runs. */
STATIC_THREAD_LOCAL struct {
  network_instance* instance;
  char* next;
  char* end;
  int in_loop;
} workspace;

void* export_allocate(int device_kind, int device, uint64_t bytes, int type, int bits) {
  (void)device_kind, (void)device, (void)type, (void)bits;
  uint64_t rounded = (bytes + NETWORK_ARENA_ALIGNMENT - 1) / NETWORK_ARENA_ALIGNMENT * NETWORK_ARENA_ALIGNMENT;
  if (rounded < bytes || rounded > (uint64_t)(workspace.end - workspace.next)) return NULL;
  void* memory = workspace.next;
  workspace.next += rounded;
  return memory;
}

/* Kernels release allocations in reverse order. */
int export_release(int device_kind, int device, void* memory) {
  (void)device_kind, (void)device;
  workspace.next = memory;
  return 0;
}

typedef struct {
  Loop loop;
  void* data;
  network_instance* instance;
} shared_loop;

static int run_chunk(int chunk, Environment* environment, void* data) {
  const shared_loop* shared = data;
  __typeof__(workspace) saved = workspace;
  workspace.instance = shared->instance;
  workspace.next = shared->instance->arena + CHUNKS_OFFSET + (size_t)thread_number * CHUNK_BYTES;
  workspace.end = workspace.next + CHUNK_BYTES;
  workspace.in_loop = 1;
  int failure = shared->loop(chunk, environment, shared->data);
  workspace = saved;
  return failure;
}

int export_launch(Loop loop, void* data, int chunks) {
  if (workspace.in_loop) return run_alone(loop, data, chunks ? chunks : 1);
  shared_loop shared = {loop, data, workspace.instance};
  return launch(run_chunk, &shared, chunks);
}

/* Starts the threads now, because nothing may be allocated later. */
static void start_threads(void) {
  pthread_mutex_lock(&pool.in_use);
  if (!pool.threads) start();
  pthread_mutex_unlock(&pool.in_use);
}

static network_error find_level(const instruction_set** level, const char* name) {
  int known = 0;
  for (int i = 0; i < LEVELS; ++i) {
    if (name && strcmp(name, levels[i].name)) continue;
    known = 1;
    if (!processor_has(&levels[i])) continue;
    *level = &levels[i];
    return NETWORK_OK;
  }
  return known ? NETWORK_ERROR_PROCESSOR : NETWORK_ERROR_LEVEL;
}

static network_error find_arena(char** arena, int* owns, const network_settings* settings) {
  *arena = settings->arena;
  *owns = !*arena;
  if (*owns) {
    *arena = aligned_alloc(NETWORK_ARENA_ALIGNMENT, NETWORK_ARENA_BYTES);
    return *arena ? NETWORK_OK : NETWORK_ERROR_MEMORY;
  }
  if (settings->arena_bytes < NETWORK_ARENA_BYTES) return NETWORK_ERROR_ARENA_TOO_SMALL;
  return (uintptr_t)*arena % NETWORK_ARENA_ALIGNMENT ? NETWORK_ERROR_ARENA_NOT_ALIGNED : NETWORK_OK;
}

/* Copies sizes to shapes and to the arguments that are sizes. */
static void set_sizes(network_instance* instance, const int64_t* sizes) {
  for (int i = 0; i < NETWORK_RANGES; ++i) instance->sizes[i] = sizes[i];
  set_extents(instance->sizes, instance->extents);
  for (int i = 0; i < ARGUMENTS; ++i)
    if (argument_rows[i] >= TENSORS)
      instance->arguments[i] = (kernel_argument){NUMBER, 0, {.number = instance->sizes[argument_rows[i] - TENSORS]}};
}

/* Describes every operand; inputs and outputs get their addresses when the network runs. */
static void describe_operands(network_instance* instance) {
  memcpy(instance->extents, extents, sizeof extents);
  for (int i = 0; i < TENSORS; ++i) {
    const tensor_row* row = &tensor_rows[i];
    void* data = NULL;
    if (row->place == WEIGHTS) data = (void*)(instance->weights.content + row->position);
    if (row->place == BUFFER) data = instance->arena + BUFFERS_OFFSET + row->position;
    const int64_t* shape = instance->extents + row->first_extent;
    instance->tensors[i] = (kernel_tensor){data, 1, 0, row->rank, row->type, row->bits, 1, shape, NULL, 0};
  }
  for (int i = 0; i < ARGUMENTS; ++i)
    if (argument_rows[i] < TENSORS) instance->arguments[i] = (kernel_argument){TENSOR, 0, {&instance->tensors[argument_rows[i]]}};
  int64_t largest[NETWORK_RANGES + 1];
  for (int i = 0; i < NETWORK_RANGES; ++i) largest[i] = range_rows[i].largest;
  set_sizes(instance, largest);
}

network_error network_create(network_instance** created, const network_settings* settings) {
  static const network_settings defaults = {0};
  if (!created) return NETWORK_ERROR_NULL;
  *created = NULL;
  if (!settings) settings = &defaults;
  const instruction_set* level = NULL;
  char* arena;
  int owns;
  weights weights;
  network_error error = find_level(&level, settings->level);
  if (error) return error;
  if ((error = weights_open(&weights, settings->weights, settings->check_weights))) return error;
  if ((error = find_arena(&arena, &owns, settings))) {
    weights_close(&weights);
    return error;
  }
  network_instance* instance = (network_instance*)arena;
  instance->kernels = level->kernels;
  instance->level = level->name;
  instance->weights = weights;
  instance->arena = arena;
  instance->owns_arena = owns;
  atomic_flag_clear(&instance->is_running);
  describe_operands(instance);
  start_threads();
  *created = instance;
  return NETWORK_OK;
}

static int overlap(const void* first, size_t first_bytes, const void* second, size_t second_bytes) {
  uintptr_t a = (uintptr_t)first, b = (uintptr_t)second;
  return a < b + second_bytes && b < a + first_bytes;
}

static size_t size_of(const network_instance* instance, const caller_row* row) {
  const kernel_tensor* tensor = &instance->tensors[row->tensor];
  size_t bytes = tensor->bits / 8;
  for (int i = 0; i < tensor->rank; ++i) bytes *= (size_t)tensor->shape[i];
  return bytes;
}

static network_error check(
    const network_instance* instance, const network_input* inputs, const network_output* outputs) {
  for (int i = 0; i < NETWORK_INPUTS; ++i) {
    if (!inputs[i].data) return NETWORK_ERROR_NULL;
    if (inputs[i].bytes != size_of(instance, &input_rows[i])) return NETWORK_ERROR_SIZE;
  }
  for (int i = 0; i < NETWORK_OUTPUTS; ++i) {
    if (!outputs[i].data) return NETWORK_ERROR_NULL;
    if (outputs[i].bytes != size_of(instance, &output_rows[i])) return NETWORK_ERROR_SIZE;
  }
  for (int i = 0; i < NETWORK_OUTPUTS; ++i) {
    for (int j = 0; j < NETWORK_INPUTS; ++j)
      if (overlap(outputs[i].data, outputs[i].bytes, inputs[j].data, inputs[j].bytes)) return NETWORK_ERROR_OVERLAP;
    for (int j = 0; j < i; ++j)
      if (overlap(outputs[i].data, outputs[i].bytes, outputs[j].data, outputs[j].bytes)) return NETWORK_ERROR_OVERLAP;
  }
  return NETWORK_OK;
}

static int is_aligned(const void* data) { return (uintptr_t)data % NETWORK_ARENA_ALIGNMENT == 0; }

static int run_steps(network_instance* instance) {
  for (int i = 0; i < STEPS; ++i) {
    kernel_argument result = {0};
    const step_row* step = &step_rows[i];
    workspace.next = instance->arena + SERIAL_OFFSET;
    workspace.end = workspace.next + SERIAL_BYTES;
    if (instance->kernels[step->kernel](NULL, instance->arguments + step->first_argument, step->arguments, &result))
      return -1;
  }
  return 0;
}

static network_error run_once(network_instance* instance, const network_input* inputs, const network_output* outputs) {
  void *in[NETWORK_INPUTS + 1], *out[NETWORK_OUTPUTS + 1];
  for (int i = 0; i < NETWORK_INPUTS; ++i) {
    in[i] = is_aligned(inputs[i].data) ? (void*)inputs[i].data : instance->arena + input_rows[i].offset;
    if (in[i] != inputs[i].data) memcpy(in[i], inputs[i].data, inputs[i].bytes);
  }
  for (int i = 0; i < NETWORK_OUTPUTS; ++i)
    out[i] = is_aligned(outputs[i].data) ? outputs[i].data : instance->arena + output_rows[i].offset;
  for (int i = 0; i < CALLER_TENSORS; ++i)
    instance->tensors[i].data = tensor_rows[i].place == INPUT ? in[tensor_rows[i].position]
                                                              : out[tensor_rows[i].position];
  workspace.instance = instance;
  workspace.in_loop = 0;
  int failure = run_steps(instance);
  for (int i = 0; i < COPIES && !failure; ++i)
    memcpy(out[copy_rows[i].output], instance->tensors[copy_rows[i].tensor].data, outputs[copy_rows[i].output].bytes);
  for (int i = 0; i < NETWORK_OUTPUTS && !failure; ++i)
    if (out[i] != outputs[i].data) memcpy(outputs[i].data, out[i], outputs[i].bytes);
  return failure ? NETWORK_ERROR_KERNEL : NETWORK_OK;
}

network_error network_run(network_instance* instance, const network_input* inputs, const network_output* outputs) {
  if (!instance || !inputs || !outputs) return NETWORK_ERROR_NULL;
  if (atomic_flag_test_and_set_explicit(&instance->is_running, memory_order_acquire)) return NETWORK_ERROR_BUSY;
  network_error error = check(instance, inputs, outputs);
  if (!error) error = run_once(instance, inputs, outputs);
  atomic_flag_clear_explicit(&instance->is_running, memory_order_release);
  return error;
}

#if NETWORK_RANGES
network_error network_resize(network_instance* instance, const int64_t sizes[]) {
  if (!instance || !sizes) return NETWORK_ERROR_NULL;
  for (int i = 0; i < NETWORK_RANGES; ++i)
    if (sizes[i] < range_rows[i].smallest || sizes[i] > range_rows[i].largest) return NETWORK_ERROR_RANGE;
  if (atomic_flag_test_and_set_explicit(&instance->is_running, memory_order_acquire)) return NETWORK_ERROR_BUSY;
  set_sizes(instance, sizes);
  atomic_flag_clear_explicit(&instance->is_running, memory_order_release);
  return NETWORK_OK;
}
#endif

const int64_t* network_output_shape(const network_instance* instance, int output) {
  return instance && output >= 0 && output < NETWORK_OUTPUTS ? instance->tensors[output_rows[output].tensor].shape : NULL;
}

void network_destroy(network_instance* instance) {
  if (!instance) return;
  weights_close(&instance->weights);
  if (instance->owns_arena) free(instance);
}

const char* network_level(const network_instance* instance) { return instance ? instance->level : ""; }

const char* network_error_text(network_error error) {
  static const char* const texts[] = {
      [NETWORK_OK] = "no error",
      [NETWORK_ERROR_NULL] = "a pointer that must not be null is null",
      [NETWORK_ERROR_SIZE] = "an input or an output has the wrong size",
      [NETWORK_ERROR_OVERLAP] = "an output shares memory with an input or with another output",
      [NETWORK_ERROR_ARENA_TOO_SMALL] = "the arena has fewer than NETWORK_ARENA_BYTES bytes",
      [NETWORK_ERROR_ARENA_NOT_ALIGNED] = "the arena is not aligned to NETWORK_ARENA_ALIGNMENT bytes",
      [NETWORK_ERROR_MEMORY] = "the system has no memory for the arena",
      [NETWORK_ERROR_PROCESSOR] = "the CPU does not support the instructions of the library or level",
      [NETWORK_ERROR_LEVEL] = "the library has no instruction-set level with this name",
      [NETWORK_ERROR_WEIGHTS_MISSING] = "the weights file cannot be opened",
      [NETWORK_ERROR_WEIGHTS_DAMAGED] = "the weights file is damaged, or belongs to another library",
      [NETWORK_ERROR_BUSY] = "another thread is running this instance",
      [NETWORK_ERROR_KERNEL] = "a kernel failed",
      [NETWORK_ERROR_RANGE] = "a size is outside of its range",
  };
  int known = (int)error >= 0 && (size_t)error < sizeof texts / sizeof *texts;
  return known ? texts[error] : "an unknown error code";
}
