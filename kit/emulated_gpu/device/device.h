// The emulated device: its memory, and grids that run on it, one thread after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emulated {

constexpr unsigned warp_size = 32;
constexpr unsigned most_threads = 1024;

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

// One launch; the arguments are copies, so that it can be kept.
struct Launch {
  const Kernel* kernel;
  Size grid, block;
  size_t dynamic_shared_bytes = 0;
  std::vector<std::vector<char>> arguments;
};

// Runs all threads of a launch. Returns what went wrong, nothing if all is well.
std::string run(const Launch& launch);

// Global memory. As on a GPU, a program that touches it itself is killed; kernels and copies have it open.
struct Opened {
  Opened();
  ~Opened();
};
void* allocate(size_t size_bytes);
bool release(void* place);
// Says that the host wrote to global memory.
void written_by_host(void* place, size_t size_bytes);
// Copies what is known of memory, such as what was never written, with its content.
void copied(void* to, const void* from, size_t size_bytes);
bool is_global(const void* place);
uint64_t free_bytes();
uint64_t total_bytes();

// Time, as `access.cpp` sees it. Ticks increase: each block begins a tick, and so does each barrier of its threads.
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

// Ends the launch that runs; called by its threads only.
[[noreturn]] void fail(const std::string& what);

}  // namespace emulated
