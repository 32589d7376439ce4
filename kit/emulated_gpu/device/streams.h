// Streams, whose work is done immediately, or is added to a graph while the stream is captured.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device.h"

namespace emulated {

constexpr const char* device_name = "Emulated GPU";

// A piece of work, which returns an error message, empty on success.
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
