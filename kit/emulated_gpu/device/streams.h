// Streams of work, which is done at once or, while a stream is captured, becomes part of a graph.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device.h"

namespace emulated {

constexpr const char* device_name = "Emulated GPU";

// Work, which returns an error message, empty on success.
using Work = std::function<std::string()>;

struct Graph {
  std::vector<Work> works;
};

struct Stream {
  Graph* captured = nullptr;
};

// The last error message.
extern std::string last_failure;

// Does work now, or adds it to the captured graph. Returns whether it succeeded.
bool submit(Stream* stream, Work work);

}  // namespace emulated
