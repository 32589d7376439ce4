// Streams of work: it is done at once, or, while a stream is captured, becomes part of a graph.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device.h"

namespace emulated {

constexpr const char* device_name = "Emulated GPU";

// Work that returns what went wrong, nothing if all is well.
using Work = std::function<std::string()>;

struct Graph {
  std::vector<Work> works;
};

struct Stream {
  Graph* captured = nullptr;
};

// What went wrong last.
extern std::string last_failure;

// Does work now, or adds it to the graph that is captured. Returns whether all is well.
bool submit(Stream* stream, Work work);

}  // namespace emulated
