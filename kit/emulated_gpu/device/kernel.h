// Included in CUDA kernels that are compiled for the CPU: CUDA's builtins, as calls to the emulated device.
//
// The compiler's instrumentation for ThreadSanitizer calls the device at every memory access; see `access.cpp`.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <vector_functions.h>
#include <vector_types.h>

#undef __global__
#undef __device__
#undef __forceinline__
#undef __shared__
#undef __launch_bounds__
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

extern "C" {
// The running thread and its block; constant while a kernel's function runs.
uint3 emulated_thread_index() __attribute__((const));
uint3 emulated_block_index() __attribute__((const));
uint3 emulated_block_size() __attribute__((const));
uint3 emulated_grid_size() __attribute__((const));
// Waits for all threads of the block. A site is the number of a call in the source.
void emulated_synchronize(int site);
// Waits for the threads of a warp in a mask; `emulated_exchange` also returns the `value` of another lane.
void emulated_synchronize_warp(int site, unsigned mask);
uint64_t emulated_exchange(int site, unsigned mask, uint64_t value, int lane);
unsigned emulated_active_mask();
int emulated_lane();
// Registers an array in shared memory.
void emulated_shared(const char* name, void* array, size_t size_bytes);
// Shared memory with the size given at launch.
void* emulated_dynamic_shared();
// Checks the alignment of a vector of this size.
void emulated_check_alignment(const void* place, size_t size_bytes);
// An access that never races with another of its kind.
void emulated_atomic(void* place, size_t size_bytes);
}

#define threadIdx emulated_thread_index()
#define blockIdx emulated_block_index()
#define blockDim emulated_block_size()
#define gridDim emulated_grid_size()
#define __activemask() emulated_active_mask()
// Unlike CUDA's compiler, this one may copy a call into several branches, so its address does not identify it.
#define __syncthreads() emulated_synchronize(__COUNTER__)
#define __syncwarp() emulated_synchronize_warp(__COUNTER__, 0xffffffffu)
#define __shfl_sync(...) emulated_from(__COUNTER__, __VA_ARGS__)
#define __shfl_down_sync(...) emulated_from_above(__COUNTER__, __VA_ARGS__)
#define __shfl_up_sync(...) emulated_from_below(__COUNTER__, __VA_ARGS__)
#define __shfl_xor_sync(...) emulated_from_other(__COUNTER__, __VA_ARGS__)

template <typename T>
T emulated_shuffle(int site, unsigned mask, T value, int lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffled value has at most eight bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = emulated_exchange(site, mask, bits, lane);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// A source lane outside of the segment of `width` lanes is replaced by the calling lane (CUDA C++ Programming Guide,
// warp shuffle functions).
template <typename T>
T emulated_from(int site, unsigned mask, T value, int source, int width = 32) {
  int self = emulated_lane();
  return emulated_shuffle(site, mask, value, self / width * width + source % width);
}

template <typename T>
T emulated_from_above(int site, unsigned mask, T value, unsigned distance, int width = 32) {
  int self = emulated_lane(), source = self + int(distance);
  return emulated_shuffle(site, mask, value, source / width == self / width ? source : self);
}

template <typename T>
T emulated_from_below(int site, unsigned mask, T value, unsigned distance, int width = 32) {
  int self = emulated_lane(), source = self - int(distance);
  return emulated_shuffle(site, mask, value, source >= self / width * width ? source : self);
}

template <typename T>
T emulated_from_other(int site, unsigned mask, T value, int lane_mask, int width = 32) {
  int self = emulated_lane(), source = self ^ lane_mask;
  return emulated_shuffle(site, mask, value, source / width == self / width ? source : self);
}

template <typename T>
T* emulated_aligned(void* place) {
  emulated_check_alignment(place, alignof(T));
  return static_cast<T*>(place);
}

template <typename T>
__attribute__((no_sanitize_thread, noinline)) T atomicAdd(T* place, T value) {
  emulated_atomic(place, sizeof(T));
  T before = *place;
  *place = before + value;
  return before;
}

// CUDA declares these for all pairs of arithmetic types.
template <typename A, typename B>
auto max(A a, B b) -> decltype(a + b) {
  return a < b ? b : a;
}
template <typename A, typename B>
auto min(A a, B b) -> decltype(a + b) {
  return b < a ? b : a;
}
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }

inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline int __float_as_int(float x) { int bits; std::memcpy(&bits, &x, sizeof bits); return bits; }
inline float __int_as_float(int bits) { float x; std::memcpy(&x, &bits, sizeof x); return x; }

// The entry point of a kernel for launches: it takes an array of pointers to arguments, as in the driver API.
#define UNCHECKED __attribute__((no_sanitize_thread))

template <typename... A, size_t... I>
UNCHECKED void emulated_call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<A*>(arguments[I])...);
}

template <typename... A>
UNCHECKED size_t emulated_sizes(void (*)(A...), size_t* sizes) {
  size_t argument_sizes[] = {sizeof(A)..., 0};
  std::memcpy(sizes, argument_sizes, sizeof...(A) * sizeof(size_t));
  return sizeof...(A);
}

template <typename... A>
UNCHECKED void emulated_call(void (*kernel)(A...), void** arguments) {
  emulated_call(kernel, arguments, std::index_sequence_for<A...>());
}

#define EMULATED_KERNEL(name)                                                                         \
  extern "C" UNCHECKED void emulated_call_##name(void** arguments) { emulated_call(name, arguments); } \
  extern "C" UNCHECKED size_t emulated_sizes_##name(size_t* sizes) { return emulated_sizes(name, sizes); }
