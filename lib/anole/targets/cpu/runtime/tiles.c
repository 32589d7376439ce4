/* Products of 8-bit or bfloat16 tiles: with Intel's tile instructions (AMX), or with plain C that rounds in the same way.
 *
 * A word is 32 bits: two packed bfloat16 or four packed bytes. A product multiplies strips of up to 16 rows of data,
 * such as adjacent pixels, with a panel of 16, 32 or more columns of weights. It sums over taps, such as a kernel's rows
 * and columns, and for each tap over groups of up to 16 words. Data is read in place; weights are stored in the order in
 * which they are read.
 *
 * The implementation is chosen when the library is loaded. The instructions need permission from the system, once per
 * process, and each thread must configure the shapes of its tiles. Another library may do so, too, between two chunks of
 * a loop, so a chunk ends with `release_tiles`.
 */
#define _GNU_SOURCE
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HIDDEN __attribute__((visibility("hidden")))

enum { COLUMNS = 16, COLUMN_BYTES = 64 };

typedef struct {
  char* sums; /* int32 or float32 accumulators: strips of `sums_rows` rows of all columns */
  const char *data, *weights;
  bool is_8bit;            /* uint8 times int8, not bfloat16 */
  int64_t rows, left;      /* rows of a strip, and of all strips together */
  int64_t sums_rows;       /* rows from one strip of sums to the next */
  int64_t row, strip;      /* bytes from one row of data, and from one strip, to the next */
  int64_t taps[2], tap[2]; /* the number of taps in both directions, and bytes from one tap to the next */
  int64_t groups, words;   /* groups of a tap, and words of a group */
  int64_t columns;         /* the panel's width, in tiles */
} Product;

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* The instructions flush subnormal operands and results to zero. */
static inline float flush(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }

static inline float widen(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return flush(value);
}

static void add_bytes(uint32_t* sums, const char* data, const char* weights, int64_t words, int64_t step) {
  for (int64_t k = 0; k < words; ++k, data += 4, weights += step) {
    const uint8_t* a = (const uint8_t*)data;
    const int8_t* b = (const int8_t*)weights;
    for (int n = 0; n < COLUMNS; ++n, b += 4) sums[n] += (uint32_t)(a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]);
  }
}

/* Even and odd elements have separate accumulators. A product of two bfloat16 is exact in float32. */
static void add_bfloat16(float* sums, const char* data, const char* weights, int64_t words, int64_t step) {
  float even[COLUMNS] = {0}, odd[COLUMNS] = {0};
  for (int64_t k = 0; k < words; ++k, data += 4, weights += step) {
    const uint16_t *a = (const uint16_t*)data, *b = (const uint16_t*)weights;
    float first = widen(a[0]), second = widen(a[1]);
    for (int n = 0; n < COLUMNS; ++n) {
      even[n] = flush(even[n] + first * widen(b[2 * n]));
      odd[n] = flush(odd[n] + second * widen(b[2 * n + 1]));
    }
  }
  for (int n = 0; n < COLUMNS; ++n) sums[n] = flush(sums[n] + flush(even[n] + odd[n]));
}

/* Computes 16 columns of one row. */
static void multiply_row(const Product* p, const char* data, const char* weights, char* sums) {
  int64_t step = COLUMN_BYTES * p->columns;
  union {
    uint32_t integer[COLUMNS];
    float real[COLUMNS];
  } total = {{0}};
  for (int64_t y = 0; y < p->taps[0]; ++y)
    for (int64_t x = 0; x < p->taps[1]; ++x) {
      const char* words = data + y * p->tap[0] + x * p->tap[1];
      for (int64_t group = 0; group < p->groups; ++group, words += 4 * p->words, weights += p->words * step)
        if (p->is_8bit) add_bytes(total.integer, words, weights, p->words, step);
        else add_bfloat16(total.real, words, weights, p->words, step);
    }
  memcpy(sums, &total, COLUMN_BYTES);
}

static void multiply_portably(const Product* p) {
  for (int64_t row = 0; row < p->left; ++row) {
    int64_t strip = row / p->rows, in_strip = row % p->rows;
    const char* data = p->data + strip * p->strip + in_strip * p->row;
    char* sums = p->sums + (strip * p->sums_rows + in_strip) * p->columns * COLUMN_BYTES;
    for (int64_t at = 0; at < p->columns * COLUMN_BYTES; at += COLUMN_BYTES) multiply_row(p, data, p->weights + at, sums + at);
  }
}

static void (*multiply)(const Product*) = multiply_portably;

#ifdef WITH_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WITH_TILES __attribute__((target("amx-tile,amx-int8,amx-bf16")))
#define ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define LOAD(tile, from, step) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(step) : "memory")
#define STORE(tile, to, step) __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(step) : "memory")
#define ADD(sums, a, b)                                                                                             \
  do {                                                                                                              \
    if (is_8bit) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #sums ::);                              \
    else __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sums ::);                                    \
  } while (0)

/* Computes two strips of up to two tiles of columns, or one strip of up to four. Accumulators are in tiles 0 to 3, data
 * in 4 and 5, weights in 6 and 7. */
WITH_TILES static inline __attribute__((always_inline)) void multiply_block(
    const Product* p, int64_t strip, bool two, int64_t column, int64_t columns, bool is_8bit) {
  int64_t step = COLUMN_BYTES * p->columns;
  const char *data = p->data + strip * p->strip, *weights = p->weights + COLUMN_BYTES * column;
  ZERO(0);
  ZERO(1);
  ZERO(2);
  ZERO(3);
  for (int64_t y = 0; y < p->taps[0]; ++y)
    for (int64_t x = 0; x < p->taps[1]; ++x) {
      const char* words = data + y * p->tap[0] + x * p->tap[1];
      for (int64_t group = 0; group < p->groups; ++group, words += 4 * p->words, weights += p->words * step) {
        LOAD(4, words, p->row);
        LOAD(6, weights, step);
        ADD(0, 4, 6);
        if (two) {
          LOAD(5, words + p->strip, p->row);
          ADD(2, 5, 6);
        }
        if (columns > 1) {
          LOAD(7, weights + COLUMN_BYTES, step);
          ADD(1, 4, 7);
          if (two) ADD(3, 5, 7);
        }
        if (columns > 2) {
          LOAD(6, weights + 2 * COLUMN_BYTES, step);
          ADD(2, 4, 6);
        }
        if (columns > 3) {
          LOAD(7, weights + 3 * COLUMN_BYTES, step);
          ADD(3, 4, 7);
        }
      }
    }
  char* sums = p->sums + strip * p->sums_rows * step + COLUMN_BYTES * column;
  char* second_sums = two ? sums + p->sums_rows * step : sums + 2 * COLUMN_BYTES;
  STORE(0, sums, step);
  if (columns > 1) STORE(1, sums + COLUMN_BYTES, step);
  if (two || columns > 2) STORE(2, second_sums, step);
  if (two ? columns > 1 : columns > 3) STORE(3, second_sums + COLUMN_BYTES, step);
}

/* The operand of `ldtilecfg`: the bytes per row, and the rows, of each tile. */
typedef struct {
  uint8_t palette, first_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} Shapes;

_Static_assert(sizeof(Shapes) == 64 && offsetof(Shapes, row_bytes) == 16 && offsetof(Shapes, rows) == 48, "Intel's layout");

static _Thread_local int shaped __attribute__((tls_model("initial-exec"))); /* the shapes of this thread's tiles */

/* Configures the tiles for strips of `rows` and `second` rows, unless they have these shapes. */
WITH_TILES static void shape_tiles(int64_t rows, int64_t second, int64_t words) {
  int wanted = (int)(rows | second << 8 | words << 16);
  if (shaped == wanted) return;
  Shapes shapes = {.palette = 1};
  for (int tile = 0; tile < 8; ++tile) {
    shapes.row_bytes[tile] = tile == 4 || tile == 5 ? (uint16_t)(4 * words) : COLUMN_BYTES;
    shapes.rows[tile] = (uint8_t)(tile > 5 ? words : tile == 2 || tile == 3 || tile == 5 ? second : rows);
  }
  __asm__ volatile("ldtilecfg %0" ::"m"(shapes) : "memory");
  shaped = wanted;
}

WITH_TILES static void multiply_in_tiles(const Product* p) {
  for (int64_t strip = 0, left = p->left; left > 0;) {
    int64_t rows = min64(left, p->rows), second = min64(left - rows, p->rows), widest = second ? 2 : 4;
    shape_tiles(rows, second ? second : rows, p->words);
    for (int64_t column = 0; column < p->columns; column += widest) {
      int64_t columns = min64(widest, p->columns - column);
      if (p->is_8bit) multiply_block(p, strip, second, column, columns, true);
      else multiply_block(p, strip, second, column, columns, false);
    }
    strip += second ? 2 : 1;
    left -= rows + second;
  }
}

/* Returns whether the processor has tiles, the system saves them, and this process may use them. */
static bool may_use_tiles(void) {
  enum { XSAVED = 1 << 27, FEATURES = 1 << 22 | 1 << 24 | 1 << 25, STATES = 3 << 17, REQUEST = 0x1023, TILE_DATA = 18 };
  unsigned a, b, c, d, states;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & XSAVED)) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & FEATURES) != FEATURES) return false;
  __asm__ volatile("xgetbv" : "=a"(states) : "c"(0) : "edx");
  return (states & STATES) == STATES && !syscall(SYS_arch_prctl, REQUEST, TILE_DATA);
}

__attribute__((constructor)) static void choose(void) {
  if (may_use_tiles()) multiply = multiply_in_tiles;
}
#endif

/* Called by kernels; see `Product`. Distances are in words; `width` is the panel's number of columns. `last_sum` and `last`,
 * the last elements of the accumulators and the data, only show the kernel's compiler the extent of these accesses. */
HIDDEN void multiply_tiles(void* sums, const void* data, const void* weights, const void* last_sum, const void* last,
                           int64_t is_8bit, int64_t rows, int64_t left, int64_t sums_rows, int64_t row, int64_t strip,
                           int64_t taps_y, int64_t tap_y, int64_t taps_x, int64_t tap_x, int64_t groups, int64_t words,
                           int64_t width) {
  (void)last_sum, (void)last;
  Product product = {
      .sums = sums, .data = data, .weights = weights, .is_8bit = is_8bit, .rows = rows, .left = left,
      .sums_rows = sums_rows, .row = 4 * row, .strip = 4 * strip, .taps = {taps_y, taps_x}, .tap = {4 * tap_y, 4 * tap_x},
      .groups = groups, .words = words, .columns = width / COLUMNS};
  if (left > 0) multiply(&product);
}

/* Called by kernels at the end of each chunk. */
HIDDEN void release_tiles(void) {
#ifdef WITH_AMX
  if (shaped) __asm__ volatile("tilerelease" ::: "memory");
  shaped = 0;
#endif
}
