// The part of CUDA's runtime (libcudart) that TVM calls: device attributes, memory, streams, events and graphs.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "streams.h"

namespace {

using namespace emulated;
using Clock = std::chrono::steady_clock;

struct Event {
  Clock::time_point at;
};

Stream* of(cudaStream_t stream) { return reinterpret_cast<Stream*>(stream); }

// Ten times the compute capability of ANOLE_EMULATED_ARCH, such as 90 for sm_90.
int capability() {
  const char* arch = std::getenv("ANOLE_EMULATED_ARCH");
  return arch && std::strlen(arch) > 3 ? std::atoi(arch + 3) : 90;
}

std::string copy(void* to, const void* from, size_t size_bytes) {
  Opened memory;
  std::memmove(to, from, size_bytes);
  if (is_global(to) && is_global(from)) copied(to, from, size_bytes);
  else if (is_global(to)) written_by_host(to, size_bytes);
  return "";
}

}  // namespace

extern "C" {

// Only TVM finds the device. Other libraries, such as torch, would call functions that the emulator does not have.
cudaError_t cudaGetDeviceCount(int* count) {
  Dl_info caller{};
  bool is_for_tvm = dladdr(__builtin_return_address(0), &caller) && std::strstr(caller.dli_fname, "tvm");
  return *count = is_for_tvm, is_for_tvm ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device ? cudaErrorInvalidDevice : cudaSuccess; }

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = capability() / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = capability() % 10; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = int(max_threads); break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = 1 << 16; break;
    case cudaDevAttrWarpSize: *value = int(warp_size); break;
    case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *value = int(max_threads); break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMultiProcessorCount: *value = 1; break;
    case cudaDevAttrL2CacheSize: *value = 1 << 16; break;
    case cudaDevAttrClockRate: *value = 1000000; break;
    default: *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = cudaDeviceProp{};
  std::strcpy(properties->name, device_name);
  properties->totalGlobalMem = total_bytes();
  properties->major = capability() / 10, properties->minor = capability() % 10;
  properties->warpSize = int(warp_size), properties->maxThreadsPerBlock = int(max_threads);
  properties->multiProcessorCount = 1;
  properties->l2CacheSize = 1 << 16;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return *free = free_bytes(), *total = total_bytes(), cudaSuccess;
}

cudaError_t cudaMalloc(void** place, size_t size) {
  return (*place = allocate(size)) ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void* place) { return !place || release(place) ? cudaSuccess : cudaErrorInvalidValue; }
cudaError_t cudaMallocHost(void** place, size_t size) {
  return (*place = std::malloc(size)) ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* place) { return std::free(place), cudaSuccess; }

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind, cudaStream_t stream) {
  return submit(of(stream), [=] { return copy(to, from, size); }) ? cudaSuccess : cudaErrorUnknown;
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return *stream = reinterpret_cast<cudaStream_t>(new Stream), cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete of(stream), cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (!stream) return cudaErrorStreamCaptureUnsupported;
  return of(stream)->captured = new Graph, cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(of(stream)->captured);
  return of(stream)->captured = nullptr, cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return *executable = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph))), cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const Work& work : reinterpret_cast<Graph*>(executable)->works) {
    if (!submit(of(stream), work)) return cudaErrorLaunchFailure;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete reinterpret_cast<Graph*>(graph), cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return delete reinterpret_cast<Graph*>(graph), cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return *event = reinterpret_cast<cudaEvent_t>(new Event), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete reinterpret_cast<Event*>(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  return reinterpret_cast<Event*>(event)->at = Clock::now(), cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* elapsed_ms, cudaEvent_t from, cudaEvent_t to) {
  auto elapsed = reinterpret_cast<Event*>(to)->at - reinterpret_cast<Event*>(from)->at;
  return *elapsed_ms = std::chrono::duration<float, std::milli>(elapsed).count(), cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return last_failure.c_str(); }
const char* cudaGetErrorString(cudaError_t) { return last_failure.c_str(); }
}
