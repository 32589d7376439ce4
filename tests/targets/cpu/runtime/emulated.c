/* Both implementations of tile products, for the tests of tiles.c, with AMX emulated on processors without it.
 *
 * Such a processor raises a signal; the handler implements Intel's manual and aborts on what the manual forbids.
 */
#include "tiles.c"

#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>

typedef struct {
  uint8_t bytes[16][64];
} Tile;

static struct {
  Shapes shapes;
  Tile tiles[8];
  int64_t executed;
} unit;

static void demand(bool condition) {
  if (!condition) abort();
}

static void shape(const Shapes* shapes) {
  for (int i = 0; i < 14; ++i) demand(!shapes->reserved[i]);
  for (int i = 0; i < 16; ++i) {
    demand(i < 8 ? shapes->row_bytes[i] <= 64 && shapes->rows[i] <= 16 : !shapes->row_bytes[i] && !shapes->rows[i]);
    demand(!shapes->row_bytes[i] == !shapes->rows[i]);
  }
  demand(shapes->palette == 1 && !shapes->first_row);
  unit.shapes = *shapes;
  memset(unit.tiles, 0, sizeof unit.tiles);
}

static float real(const void* bytes, int size) {
  uint32_t bits = 0;
  float value;
  memcpy((char*)&bits + 4 - size, bytes, (size_t)size);
  if (!(bits & 0x7f800000)) bits &= 0x80000000;
  memcpy(&value, &bits, 4);
  return value;
}

/* Rounds once: 53 bits suffice to round the exact sum of a product and a float correctly afterwards. */
static void add_real(float* sum, double addend) {
  float result = (float)(addend + *sum);
  *sum = real(&result, 4);
}

static void add_product(int sums, int left, int right, bool of_bytes) {
  const Shapes* shapes = &unit.shapes;
  int words = shapes->row_bytes[left] / 4, columns = shapes->row_bytes[right] / 4;
  demand(sums != left && left != right && sums != right && words == shapes->rows[right] && words > 0);
  demand(shapes->rows[sums] == shapes->rows[left] && shapes->row_bytes[sums] == shapes->row_bytes[right]);
  for (int m = 0; m < shapes->rows[sums]; ++m)
    for (int n = 0; n < columns; ++n) {
      uint8_t* sum = unit.tiles[sums].bytes[m] + 4 * n;
      float total = real(sum, 4), parts[2] = {0};
      for (int k = 0; k < words; ++k) {
        const uint8_t *a = unit.tiles[left].bytes[m] + 4 * k, *b = unit.tiles[right].bytes[k] + 4 * n;
        for (int i = 0; of_bytes && i < 4; ++i) *(uint32_t*)sum += (uint32_t)(a[i] * (int8_t)b[i]);
        for (int i = 0; !of_bytes && i < 2; ++i) add_real(&parts[i], (double)real(a + 2 * i, 2) * real(b + 2 * i, 2));
      }
      add_real(&parts[0], parts[1]);
      add_real(&total, parts[0]);
      if (!of_bytes) memcpy(sum, &total, 4);
    }
}

/* Decodes an instruction with a three-byte prefix, as all tile instructions have, and executes it. */
static void execute(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  static const int order[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  const uint8_t* code = (const uint8_t*)registers[REG_RIP];
  demand(code[0] == 0xc4 && (code[1] & 0x1f) == 2 && !(code[2] & 0x84));
  int prefix = code[2] & 3, third = ~code[2] >> 3 & 15, operation = code[3] << 4 | prefix;
  int mode = code[4] >> 6, first = code[4] >> 3 & 7, second = code[4] & 7, length = 5;
  char* address = NULL;
  int64_t step = 0;
  if (mode != 3) {
    int base = second | (~code[1] >> 2 & 8), index = 4;
    int64_t offset = 0;
    if (second == 4) {
      base = (code[5] & 7) | (~code[1] >> 2 & 8), index = (code[5] >> 3 & 7) | (~code[1] >> 3 & 8);
      if (index != 4) step = registers[order[index]] << (code[5] >> 6);
      ++length;
    }
    bool relative = mode == 0 && second == 5;
    demand(!(mode == 0 && second == 4 && (base & 7) == 5));
    if (mode == 1) offset = (int8_t)code[length], ++length;
    if (mode == 2 || relative) offset = *(const int32_t*)(code + length), length += 4;
    address = (char*)(relative ? (greg_t)(code + length) : registers[order[base]]) + offset;
  }
  if (operation == 0x490 && address) shape((const Shapes*)address);
  else if (operation == 0x490) memset(&unit.shapes, 0, sizeof unit.shapes);
  else if (operation == 0x493 && !address) demand(unit.shapes.rows[first]), memset(&unit.tiles[first], 0, sizeof(Tile));
  else if (operation == 0x5e1) add_product(first, second, third, true);
  else if (operation == 0x5c2) add_product(first, second, third, false);
  else {
    bool loads = operation == 0x4b3;
    demand(address && second == 4 && unit.shapes.rows[first] && (loads || operation == 0x4b2));
    if (loads) memset(&unit.tiles[first], 0, sizeof(Tile));
    for (int row = 0; row < unit.shapes.rows[first]; ++row, address += step)
      memcpy(loads ? (char*)unit.tiles[first].bytes[row] : address, loads ? address : (char*)unit.tiles[first].bytes[row],
             unit.shapes.row_bytes[first]);
  }
  ++unit.executed;
  registers[REG_RIP] += length;
}

/* Multiplies by either implementation; returns the number of emulated instructions, or -1 if tiles were not released. */
int64_t product(bool in_tiles, char* sums, const char* data, const char* weights, bool of_bytes, int64_t rows, int64_t left,
                int64_t sums_rows, int64_t row, int64_t strip, int64_t taps_y, int64_t tap_y, int64_t taps_x, int64_t tap_x,
                int64_t groups, int64_t words, int64_t width) {
  struct sigaction before, ours = {.sa_sigaction = execute, .sa_flags = SA_SIGINFO};
  void (*chosen)(const Product*) = multiply;
  sigaction(SIGILL, &ours, &before);
  unit.executed = 0;
  multiply = in_tiles ? multiply_in_tiles : multiply_portably;
  multiply_tiles(sums, data, weights, NULL, NULL, of_bytes, rows, left, sums_rows, row, strip, taps_y, tap_y, taps_x, tap_x, groups, words,
                 width);
  multiply = chosen;
  release_tiles();
  sigaction(SIGILL, &before, NULL);
  return unit.shapes.palette ? -1 : unit.executed;
}
