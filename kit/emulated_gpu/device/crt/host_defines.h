// Replaces CUDA's header with this name, which ships only with nvcc; most of its annotations have no effect on the CPU.
#pragma once

#define __host__
#define __device__
#define __global__
#define __constant__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __device_builtin__
#define __cudart_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __CUDA_ARCH_HAS_FEATURE__(feature) 0
#define __CUDA_DEPRECATED_AS(message) __attribute__((deprecated(message)))
#define CUDARTAPI
#define CUDARTAPI_CDECL
