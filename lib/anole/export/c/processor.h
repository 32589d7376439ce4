/* Detects whether the CPU supports an instruction-set level, and the system saves its registers. */
#include <cpuid.h>

#include "kernels.h"

/* A bit that the instruction `cpuid` reports; registers are numbered eax, ebx, ecx, edx. */
typedef struct {
  uint32_t leaf, subleaf;
  uint8_t register_index, bit;
} cpu_bit;

typedef struct {
  const char* name;
  const kernel* kernels;
  const cpu_bit* bits;
  int bit_count;
  int avx, avx_512; /* whether it uses AVX or AVX-512 registers, which the system must save */
} instruction_set;

enum { SAVES_REGISTERS = 1 << 27, SSE_AND_AVX = 0x6, AVX_512 = 0xe0 };

static int has(const cpu_bit* bit) {
  unsigned registers[4], max_leaf = __get_cpuid_max(bit->leaf & 0x80000000, 0);
  if (max_leaf < bit->leaf) return 0;
  if (bit->leaf == 7 && bit->subleaf) {
    __cpuid_count(7, 0, registers[0], registers[1], registers[2], registers[3]);
    if (registers[0] < bit->subleaf) return 0;
  }
  __cpuid_count(bit->leaf, bit->subleaf, registers[0], registers[1], registers[2], registers[3]);
  return registers[bit->register_index] >> bit->bit & 1;
}

/* Returns the mask of the registers that the system saves when it switches threads. */
static unsigned saved_registers(void) {
  unsigned a, b, c, d, low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & SAVES_REGISTERS)) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

/* Returns whether the CPU and the system support a level. */
static int processor_has(const instruction_set* level) {
  unsigned needed = (level->avx ? SSE_AND_AVX : 0) | (level->avx_512 ? AVX_512 : 0);
  if (needed && (saved_registers() & needed) != needed) return 0;
  for (int i = 0; i < level->bit_count; ++i)
    if (!has(&level->bits[i])) return 0;
  return 1;
}
