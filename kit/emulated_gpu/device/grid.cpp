// Runs a grid: one block after another, with the threads of a block as fibers of one host thread.
//
// A thread runs until it ends or waits: at a barrier for all threads of its block, or for lanes of its warp.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <ucontext.h>

#include <array>
#include <memory>
#include <vector>

#include <vector_types.h>

#include "device.h"

extern "C" int emulated_lane();

namespace emulated {
namespace {

constexpr size_t stack_bytes = 256 << 10;

enum class State { fresh, ready, at_barrier, in_warp, ended };

struct Thread {
  State state;
  int site;            // the call at which the thread waits
  uint16_t warp_tick;  // barriers of its warp since the block's last one
  // In a shuffle: the value of this lane, the value that it reads, the lane to read from, and the mask of all lanes.
  uint64_t value, result;
  unsigned source, mask;
};

struct Fiber {
  char* stack;
  ucontext_t context;
  jmp_buf place;
  bool is_begun = false;
};

struct Running {
  const Launch* launch;
  std::vector<void*> arguments;
  Size block, thread_index, block_index;
  unsigned n_threads, current;
  std::array<Thread, max_threads> threads;
  jmp_buf scheduler;
  std::string failure;
  std::unique_ptr<char[]> dynamic_shared;
};

Running running;

std::vector<Fiber>& fibers() {
  static auto& instance = *new std::vector<Fiber>(max_threads);
  return instance;
}

void wait(State state, int site) {
  Thread& thread = running.threads[running.current];
  thread.state = state, thread.site = site;
  if (!_setjmp(fibers()[running.current].place)) _longjmp(running.scheduler, 1);
}

// The main function of a fiber, which runs one thread in each block.
void run_fiber() {
  for (;;) {
    running.launch->kernel->call(running.arguments.data());
    wait(State::ended, -1);
  }
}

void resume(unsigned thread) {
  Fiber& fiber = fibers()[thread];
  running.current = thread;
  Size block = running.block;
  running.thread_index = {thread % block.x, thread / block.x % block.y, thread / (block.x * block.y)};
  now.thread = uint16_t(thread), now.warp_tick = running.threads[thread].warp_tick;
  running.threads[thread].state = State::ready;
  if (_setjmp(running.scheduler)) return;
  if (fiber.is_begun) {
    now.stack = fiber.stack, now.stack_end = fiber.stack + stack_bytes;
    _longjmp(fiber.place, 1);
  }
  if (!fiber.stack) {
    auto flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    fiber.stack = static_cast<char*>(mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, flags, -1, 0));
    if (fiber.stack == MAP_FAILED) std::perror("the emulated GPU has no memory for its threads"), std::abort();
  }
  now.stack = fiber.stack, now.stack_end = fiber.stack + stack_bytes;
  fiber.is_begun = true;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = stack_bytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, run_fiber, 0);
  setcontext(&fiber.context);
}

// Calls a function for each thread in the current thread's warp.
template <typename Act>
void each_lane(Act act) {
  unsigned first = running.current / warp_size * warp_size;
  for (unsigned lane = 0; lane < warp_size && first + lane < running.n_threads; ++lane) {
    act(lane, running.threads[first + lane]);
  }
}

// Waits until all lanes of a mask have reached the same call, and returns the value of lane `source`.
uint64_t exchange(unsigned mask, uint64_t value, int source, int site) {
  Thread& current = running.threads[running.current];
  current.value = value, current.source = unsigned(source), current.mask = mask, current.site = site;
  current.state = State::in_warp;
  bool have_all_arrived = true;
  each_lane([&](unsigned lane, Thread& thread) {
    bool has_arrived = thread.state == State::in_warp && thread.mask == mask && thread.site == site;
    have_all_arrived &= has_arrived || !(mask >> lane & 1);
  });
  if (!have_all_arrived) {
    wait(State::in_warp, site);
    return current.result;
  }
  Thread* warp = &running.threads[running.current / warp_size * warp_size];
  each_lane([&](unsigned lane, Thread& thread) {
    if (!(mask >> lane & 1)) return;
    bool is_valid = thread.source < warp_size && mask >> thread.source & 1;
    thread.result = is_valid ? warp[thread.source].value : thread.value;
    thread.state = State::ready;
  });
  return current.result;
}

uint3 as_uint3(Size size) { return {size.x, size.y, size.z}; }

std::string describe(unsigned thread) { return "thread " + std::to_string(thread); }

// Resumes all threads of the block, or describes why they cannot continue.
void pass_barrier() {
  const Thread* first = nullptr;
  unsigned first_index = 0;
  for (unsigned t = 0; t < running.n_threads; ++t) {
    const Thread& thread = running.threads[t];
    if (thread.state == State::in_warp) {
      running.failure = describe(t) + " waits for lanes of its warp that never arrive";
      return;
    }
    if (!first) first = &thread, first_index = t;
    if (thread.state != first->state || thread.site != first->site) {
      running.failure = "not all threads of a block come to a barrier: " + describe(first_index) + " and " + describe(t) +
                        " are at different places";
      return;
    }
  }
  for (unsigned t = 0; t < running.n_threads; ++t) {
    running.threads[t].state = State::ready, running.threads[t].warp_tick = 0;
  }
  begin_tick();
}

void run_block() {
  unsigned n = running.n_threads, n_ended = 0;
  for (unsigned t = 0; t < n; ++t) running.threads[t].state = State::fresh, running.threads[t].warp_tick = 0;
  begin_block();
  forget_shared();
  if (running.dynamic_shared) {
    declare_shared("dynamic shared memory", running.dynamic_shared.get(), running.launch->dynamic_shared_bytes);
  }
  while (n_ended < n) {
    bool has_moved = false;
    for (unsigned t = 0; t < n; ++t) {
      State state = running.threads[t].state;
      if (state != State::fresh && state != State::ready) continue;
      resume(t);
      if (!running.failure.empty()) return;
      has_moved = true;
      n_ended += running.threads[t].state == State::ended;
    }
    if (has_moved) continue;
    pass_barrier();
    if (!running.failure.empty()) return;
  }
}

}  // namespace

void fail(const std::string& message) {
  Size thread = running.thread_index, block = running.block_index;
  char place[160];
  std::snprintf(place, sizeof place, " (thread %u,%u,%u of block %u,%u,%u)", thread.x, thread.y, thread.z, block.x,
                block.y, block.z);
  running.failure = message + place;
  _longjmp(running.scheduler, 1);
}

std::string run(const Launch& launch) {
  Opened memory;
  running.launch = &launch;
  running.arguments.clear();
  for (auto& argument : launch.arguments) running.arguments.push_back(const_cast<char*>(argument.data()));
  running.block = launch.block;
  running.n_threads = unsigned(launch.block.count());
  running.failure.clear();
  running.dynamic_shared.reset(launch.dynamic_shared_bytes ? new char[launch.dynamic_shared_bytes] : nullptr);
  begin_launch();
  Size grid = launch.grid;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        running.block_index = {x, y, z};
        run_block();
        if (running.failure.empty()) continue;
        // The stacks of the interrupted threads are discarded.
        for (Fiber& fiber : fibers()) fiber.is_begun = false;
        return launch.kernel->name + ": " + running.failure;
      }
    }
  }
  return "";
}

}  // namespace emulated

extern "C" {

using namespace emulated;

uint3 emulated_thread_index() { return as_uint3(running.thread_index); }
uint3 emulated_block_index() { return as_uint3(running.block_index); }
uint3 emulated_block_size() { return as_uint3(running.block); }
uint3 emulated_grid_size() { return as_uint3(running.launch->grid); }
void* emulated_dynamic_shared() { return running.dynamic_shared.get(); }

void emulated_synchronize(int site) { wait(State::at_barrier, site); }

void emulated_synchronize_warp(int site, unsigned mask) {
  exchange(mask, 0, emulated_lane(), site);
  // The last lane to arrive continues at once, the others when they are resumed.
  now.warp_tick = ++running.threads[running.current].warp_tick;
}

uint64_t emulated_exchange(int site, unsigned mask, uint64_t value, int lane) { return exchange(mask, value, lane, site); }

int emulated_lane() { return int(running.current % warp_size); }

unsigned emulated_active_mask() {
  unsigned mask = 0;
  each_lane([&](unsigned lane, Thread& thread) { mask |= unsigned(thread.state != State::ended) << lane; });
  return mask;
}
}
