// The part of CUDA's driver (libcuda) that TVM's runtime calls: modules, kernels and launches.
//
// The binary of a module is a shared library for the CPU, made by `kit.emulated_gpu.compiler`.
#include <cuda.h>
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "streams.h"

namespace {

struct Module {
  void* library;
  std::map<std::string, std::unique_ptr<emulated::Kernel>> kernels;
};

// The length of an ELF file that ends with its section table, as written by linkers.
size_t size_of(const void* image) {
  auto header = static_cast<const Elf64_Ehdr*>(image);
  return header->e_shoff + size_t(header->e_shnum) * header->e_shentsize;
}

void* load(const void* image) {
  // The linker identifies libraries by path, so each needs its own.
  std::string path = std::filesystem::temp_directory_path() / "anole-kernels-XXXXXX";
  int file = mkstemp(path.data());
  if (file < 0) return nullptr;
  auto bytes = static_cast<const char*>(image);
  for (size_t done = 0, size = size_of(image); done < size;) {
    ssize_t wrote = write(file, bytes + done, size - done);
    if (wrote <= 0) break;
    done += size_t(wrote);
  }
  close(file);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) emulated::last_failure = dlerror();
  unlink(path.c_str());
  return library;
}

}  // namespace

namespace emulated {

std::string last_failure = "nothing failed";

bool submit(Stream* stream, Work work) {
  if (stream && stream->captured) {
    stream->captured->works.push_back(std::move(work));
    return true;
  }
  std::string failure = work();
  if (!failure.empty()) last_failure = failure;
  return failure.empty();
}

}  // namespace emulated

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  if (std::memcmp(image, ELFMAG, SELFMAG)) return CUDA_ERROR_INVALID_IMAGE;
  void* library = load(image);
  if (!library) return CUDA_ERROR_INVALID_IMAGE;
  *module = reinterpret_cast<CUmodule>(new Module{library, {}});
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  auto loaded = reinterpret_cast<Module*>(module);
  dlclose(loaded->library);
  delete loaded;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  auto loaded = reinterpret_cast<Module*>(module);
  auto& kernel = loaded->kernels[name];
  if (!kernel) {
    auto call = dlsym(loaded->library, (std::string("emulated_call_") + name).c_str());
    auto sizes = dlsym(loaded->library, (std::string("emulated_sizes_") + name).c_str());
    if (!call || !sizes) return CUDA_ERROR_NOT_FOUND;
    kernel.reset(new emulated::Kernel{name, reinterpret_cast<void (*)(void**)>(call),
                                      reinterpret_cast<size_t (*)(size_t*)>(sizes)});
  }
  *function = reinterpret_cast<CUfunction>(kernel.get());
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void**) {
  auto kernel = reinterpret_cast<const emulated::Kernel*>(function);
  emulated::Launch launch{kernel, {config->gridDimX, config->gridDimY, config->gridDimZ},
                          {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes, {}};
  constexpr unsigned max_y = 65535, max_threads_z = 64;
  if (launch.block.count() > emulated::max_threads || launch.block.z > max_threads_z || launch.grid.y > max_y ||
      launch.grid.z > max_y || !launch.grid.count() || !launch.block.count()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t sizes[1024];
  size_t n = kernel->sizes(sizes);
  for (size_t i = 0; i < n; ++i) {
    auto argument = static_cast<const char*>(arguments[i]);
    launch.arguments.emplace_back(argument, argument + sizes[i]);
  }
  auto stream = reinterpret_cast<emulated::Stream*>(config->hStream);
  return emulated::submit(stream, [launch = std::move(launch)] { return emulated::run(launch); })
             ? CUDA_SUCCESS
             : CUDA_ERROR_LAUNCH_FAILED;
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }

CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::string text = emulated::device_name;
  name[text.copy(name, size_t(length) - 1)] = 0;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  if (error == CUDA_ERROR_LAUNCH_FAILED || error == CUDA_ERROR_INVALID_IMAGE) *text = emulated::last_failure.c_str();
  else *text = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : error == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
             : "an error of the emulated driver";
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }

CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
}
