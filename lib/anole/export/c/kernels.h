/* The interface of kernels, which is TVM's: DLPack tensors in tagged unions. */
#ifndef KERNELS_H_
#define KERNELS_H_
#include <stdint.h>

typedef struct {
  void* data;
  int32_t device_kind; /* 1 is the CPU */
  int32_t device;
  int32_t rank;
  uint8_t type; /* 0 is int, 1 uint, 2 float, 4 bfloat, 6 bool */
  uint8_t bits;
  uint16_t lanes;
  const int64_t* shape;
  const int64_t* strides; /* NULL: elements are contiguous */
  uint64_t offset;
} kernel_tensor;

enum argument_kind { NUMBER = 1, TENSOR = 7 };

typedef struct {
  int32_t kind; /* an argument_kind */
  uint32_t unused;
  union {
    kernel_tensor* tensor;
    int64_t number;
  } value;
} kernel_argument;

typedef int (*kernel)(void* self, const kernel_argument* arguments, int32_t count, kernel_argument* result);

#endif
