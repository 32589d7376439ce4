// Checks every memory access: bounds, alignment, uninitialized values, and races.
//
// Kernels are compiled with the instrumentation for ThreadSanitizer, and this file replaces the sanitizer. All threads
// run on one host thread, which makes the state of each word exact, regardless of the order of threads. Two accesses,
// one of them a write, race if no barrier separates the two threads of a block, or if their blocks differ.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "device.h"

namespace emulated {

Now now;

namespace {

constexpr size_t word = 4;
constexpr size_t max_bytes = size_t(8) << 30;
constexpr size_t alignment = 256;

// The state of a word. Tick 0 is before all launches.
struct Cell {
  uint32_t write_tick, read_tick, first_read_tick;
  uint16_t writer, reader, other_reader, write_warp_tick, read_warp_tick;
  uint8_t is_known : 1, is_written : 1, has_readers : 1, has_warps : 1;  // several readers or warps since `read_tick`
  uint8_t write_bytes, read_bytes;
};

char* reserve(size_t size_bytes, int protection = PROT_READ | PROT_WRITE) {
  void* place = mmap(nullptr, size_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) {
    std::perror("the emulated GPU cannot reserve its memory");
    std::abort();
  }
  return static_cast<char*>(place);
}

struct Global {
  char* begin = reserve(max_bytes, PROT_NONE);
  Cell* cells = reinterpret_cast<Cell*>(reserve(max_bytes / word * sizeof(Cell)));
  std::map<size_t, size_t> used;  // offset to size
  size_t max_used = 0;           // the highest end of all allocations so far

  bool has(const char* place) const { return size_t(place - begin) < max_bytes; }
  Cell* cell(const char* place) const { return cells + (place - begin) / word; }
};

// Created on first use and never destroyed, because memory is released after the last static destructor.
Global& global() {
  static Global& instance = *new Global;
  return instance;
}

struct Shared {
  std::string name;
  char* begin;
  size_t size_bytes;
  std::vector<Cell> cells;
};

std::vector<Shared> shared;

// Describes an address in messages.
std::string describe(const char* place) {
  auto at = [place](const char* begin, size_t size_bytes, const std::string& name) {
    return "byte " + std::to_string(place - begin) + " of " + name + " (" + std::to_string(size_bytes) + " bytes)";
  };
  for (const Shared& array : shared) {
    if (size_t(place - array.begin) < array.size_bytes) return at(array.begin, array.size_bytes, array.name);
  }
  if (!global().has(place)) return "an address outside of all memory";
  auto after = global().used.upper_bound(size_t(place - global().begin));
  if (after == global().used.begin()) return "an address before all arrays in global memory";
  auto [offset, size_bytes] = *std::prev(after);
  return at(global().begin + offset, size_bytes, "an array in global memory");
}

[[noreturn]] void illegal(const char* kind, const char* place, size_t size, const std::string& reason) {
  fail(std::string(kind) + " of " + std::to_string(size) + " bytes at " + describe(place) + " " + reason);
}

[[noreturn]] void race(const char* kinds, const char* place, unsigned other) {
  fail(std::string("race: ") + kinds + " without a barrier between them, by threads " + std::to_string(other) + " and " +
       std::to_string(now.thread) + ", at " + describe(place));
}

// Whether an earlier access is ordered before the current one of the same block.
bool is_ordered(uint32_t tick, uint16_t thread, uint16_t warp_tick) {
  if (tick != now.tick || thread == now.thread) return true;
  return thread / warp_size == now.thread / warp_size && warp_tick != now.warp_tick;
}

bool is_of_another_block(uint32_t tick) { return tick >= now.launch_began && tick < now.block_began; }

void read_word(Cell& cell, uint8_t bytes, const char* place, size_t size) {
  if (!cell.is_written) illegal("read", place, size, "is uninitialized");
  if (cell.write_bytes & bytes) {
    if (is_of_another_block(cell.write_tick)) race("a write and a read (of two blocks)", place, cell.writer);
    if (!is_ordered(cell.write_tick, cell.writer, cell.write_warp_tick)) {
      race("a write and a read", place, cell.writer);
    }
  }
  if (cell.read_tick == now.tick) {
    if (cell.reader != now.thread) cell.has_readers = 1, cell.other_reader = cell.reader;
    cell.has_warps |= cell.reader / warp_size != now.thread / warp_size;
    cell.read_bytes |= bytes;
  } else {
    if (cell.first_read_tick < now.launch_began) cell.first_read_tick = now.tick;
    cell.has_readers = cell.has_warps = 0, cell.read_bytes = bytes;
  }
  cell.read_tick = now.tick, cell.reader = now.thread, cell.read_warp_tick = now.warp_tick;
}

void write_word(Cell& cell, uint8_t bytes, const char* place) {
  if (cell.write_bytes & bytes) {
    if (is_of_another_block(cell.write_tick)) race("two writes (of two blocks)", place, cell.writer);
    if (!is_ordered(cell.write_tick, cell.writer, cell.write_warp_tick)) race("two writes", place, cell.writer);
  }
  if (cell.read_bytes & bytes) {
    if (is_of_another_block(cell.first_read_tick)) race("a read and a write (of two blocks)", place, cell.reader);
    bool is_unordered = cell.has_warps || (cell.has_readers && cell.read_warp_tick == now.warp_tick);
    if ((cell.read_tick == now.tick && is_unordered) || !is_ordered(cell.read_tick, cell.reader, cell.read_warp_tick)) {
      race("a read and a write", place, cell.reader == now.thread ? cell.other_reader : cell.reader);
    }
  }
  cell.write_bytes = cell.write_tick == now.tick && cell.writer == now.thread ? cell.write_bytes | bytes : bytes;
  cell.write_tick = now.tick, cell.writer = now.thread, cell.write_warp_tick = now.warp_tick;
}

enum class Kind { read, write, atomic };

// Checks an access to words beginning at `cell`.
void access(Cell* cell, const char* place, size_t size, Kind kind) {
  size_t first = reinterpret_cast<uintptr_t>(place) % word;
  for (size_t done = 0; done < size; ++cell) {
    size_t length = std::min(size - done, word - first);
    auto bytes = uint8_t(((1u << length) - 1) << first);
    const char* here = place + done;
    if (!cell->is_known) illegal(kind == Kind::read ? "read" : "write", here, size, "is outside of every array");
    if (kind == Kind::read) read_word(*cell, bytes, here, size);
    if (kind == Kind::write) write_word(*cell, bytes, here);
    cell->is_written = 1;
    done += length, first = 0;
  }
}

void check_alignment(const char* place, size_t size) {
  if (reinterpret_cast<uintptr_t>(place) % size) illegal("access", place, size, "is misaligned");
}

void check(const void* where, size_t size, Kind kind, bool is_aligned = true) {
  auto place = static_cast<const char*>(where);
  if (place >= now.stack && place + size <= now.stack_end) return;
  if (is_aligned) check_alignment(place, size);
  for (Shared& array : shared) {
    if (size_t(place - array.begin) >= array.size_bytes) continue;
    if (place + size > array.begin + array.size_bytes) illegal("access", place, size, "leaves an array in shared memory");
    return access(&array.cells[(place - array.begin) / word], place, size, kind);
  }
  if (!global().has(place)) illegal("access", place, size, "is outside of every array");
  access(global().cell(place), place, size, kind);
}

}  // namespace

void* allocate(size_t size_bytes) {
  size_t size = std::max<size_t>((size_bytes + word - 1) / word * word, word), at = alignment;
  for (auto [offset, length] : global().used) {
    if (at + size + alignment <= offset) break;
    at = (offset + length + 2 * alignment - 1) / alignment * alignment;
  }
  if (at + size + alignment > max_bytes) return nullptr;
  global().used[at] = size;
  global().max_used = std::max(global().max_used, at + size);
  char* place = global().begin + at;
  Cell known{};
  known.is_known = 1;
  std::fill_n(global().cell(place), size / word, known);
  return place;
}

bool release(void* place) {
  auto allocation = global().used.find(static_cast<char*>(place) - global().begin);
  if (allocation == global().used.end()) return false;
  std::fill_n(global().cell(static_cast<char*>(place)), allocation->second / word, Cell{});
  global().used.erase(allocation);
  return true;
}

Opened::Opened() { mprotect(global().begin, global().max_used, PROT_READ | PROT_WRITE); }
Opened::~Opened() { mprotect(global().begin, global().max_used, PROT_NONE); }

bool is_global(const void* place) { return global().has(static_cast<const char*>(place)); }

void written_by_host(void* place, size_t size_bytes) {
  Cell* cell = global().cell(static_cast<char*>(place));
  for (size_t i = 0; i < (size_bytes + word - 1) / word; ++i) {
    cell[i] = Cell{};
    cell[i].is_known = cell[i].is_written = 1;
  }
}

void copied(void* to, const void* from, size_t size_bytes) {
  Cell *target = global().cell(static_cast<char*>(to)), *source = global().cell(static_cast<const char*>(from));
  for (size_t i = 0; i < (size_bytes + word - 1) / word; ++i) {
    target[i] = Cell{};
    target[i].is_known = 1, target[i].is_written = source[i].is_written;
  }
}

uint64_t total_bytes() { return max_bytes; }

uint64_t free_bytes() {
  uint64_t used = 0;
  for (auto [_, length] : global().used) used += length;
  return max_bytes - used;
}

void begin_tick() { ++now.tick, now.warp_tick = 0; }
void begin_block() { begin_tick(), now.block_began = now.tick; }
void begin_launch() { now.launch_began = now.tick + 1; }
void forget_shared() { shared.clear(); }

void declare_shared(const char* name, void* array, size_t size_bytes) {
  auto begin = static_cast<char*>(array);
  for (Shared& known : shared) {
    if (known.begin == begin) return;
  }
  Cell known{};
  known.is_known = 1;
  shared.push_back({name, begin, size_bytes, std::vector<Cell>((size_bytes + word - 1) / word, known)});
}

}  // namespace emulated

extern "C" {

using emulated::check;
using emulated::Kind;

#define ACCESSES(size)                                                                            \
  void __tsan_read##size(void* place) { check(place, size, Kind::read); }                         \
  void __tsan_write##size(void* place) { check(place, size, Kind::write); }                       \
  void __tsan_unaligned_read##size(void* place) { check(place, size, Kind::read, false); }        \
  void __tsan_unaligned_write##size(void* place) { check(place, size, Kind::write, false); }

ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_read_range(void* place, size_t size) { check(place, size, Kind::read, false); }
void __tsan_write_range(void* place, size_t size) { check(place, size, Kind::write, false); }
void __tsan_init() {}

void emulated_atomic(void* place, size_t size_bytes) { check(place, size_bytes, Kind::atomic); }
void emulated_check_alignment(const void* place, size_t size_bytes) {
  emulated::check_alignment(static_cast<const char*>(place), size_bytes);
}
void emulated_shared(const char* name, void* array, size_t size_bytes) {
  emulated::declare_shared(name, array, size_bytes);
}
}
