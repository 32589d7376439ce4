// The emulated device: its memory, and the execution of grids, one thread after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emulated {

constexpr unsigned warp_size = 32;
constexpr unsigned max_threads = 1024;

struct Size {
  unsigned x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t(x) * y * z; }
};

// A kernel of a loaded module.
struct Kernel {
  std::string name;
  void (*call)(void** arguments);
  size_t (*sizes)(size_t* sizes_bytes);
};

// One launch; it owns copies of its arguments.
struct Launch {
  const Kernel* kernel;
  Size grid, block;
  size_t dynamic_shared_bytes = 0;
  std::vector<std::vector<char>> arguments;
};

// Runs all threads of a launch. Returns an error message, empty on success.
std::string run(const Launch& launch);

// Global memory. As on a GPU, host code that accesses it is killed; an instance of `Opened` unprotects it, for kernels
// and copies.
struct Opened {
  Opened();
  ~Opened();
};
void* allocate(size_t size_bytes);
bool release(void* place);
// Marks global memory as written by the host.
void written_by_host(void* place, size_t size_bytes);
// Copies the state of words, such as whether they are initialized, for a copy of their content.
void copied(void* to, const void* from, size_t size_bytes);
bool is_global(const void* place);
uint64_t free_bytes();
uint64_t total_bytes();

// Logical time for `access.cpp`. Each block begins a new tick, and so does each barrier of a block.
struct Now {
  uint32_t tick, block_began, launch_began;
  uint16_t thread, warp_tick;
  const char *stack, *stack_end;
};
extern Now now;

void begin_launch();
void begin_block();
void begin_tick();
void forget_shared();
void declare_shared(const char* name, void* array, size_t size_bytes);

// Ends the running launch; called only by its threads.
[[noreturn]] void fail(const std::string& message);

}  // namespace emulated
