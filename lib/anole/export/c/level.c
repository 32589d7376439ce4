/* The kernels of one instruction-set level, and the library's functions for threads and memory that they call.
 *
 * Every level is linked separately, because functions have the same names at all levels: a helper function with the
 * instructions of one level must not be called at another.
 */
#include "kernels.h"

int export_launch(int (*loop)(int, void*, void*), void* data, int chunks);
void* export_allocate(int device_kind, int device, uint64_t bytes, int type, int bits);
int export_release(int device_kind, int device, void* memory);

/* Generated code calls these pointers, which it defines as weak symbols. */
int (*const __TVMBackendParallelLaunch)(int (*)(int, void*, void*), void*, int) = export_launch;
void* (*const __TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = export_allocate;
int (*const __TVMBackendFreeWorkspace)(int, int, void*) = export_release;

#define KERNEL(name) int __tvm_ffi_##name(void*, const kernel_argument*, int32_t, kernel_argument*);
#include "kernel_list.h"
#undef KERNEL

#define KERNEL(name) __tvm_ffi_##name,
const kernel LEVEL_KERNELS[] = {
#include "kernel_list.h"
};
