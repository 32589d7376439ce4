/* Levels of instructions, and what the processor must have for them. */
#ifndef PROCESSOR_H_
#define PROCESSOR_H_
#include "kernels.h"

/* What the instruction `cpuid` says at one place; registers are numbered eax, ebx, ecx, edx. */
typedef struct {
  uint32_t leaf, subleaf;
  uint8_t position_of_register, bit;
} cpu_bit;

typedef struct {
  const char* name;
  const kernel* kernels;
  const cpu_bit* bits;
  int bit_count;
  int avx, avx_512; /* whether its registers are used, which the system must save */
} instruction_set;

/* Returns whether the processor and the system have a level. */
int processor_has(const instruction_set* level);

#endif
