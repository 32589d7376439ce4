// Does the work of a stream, or keeps it for a graph; see `streams.h`.
#include "streams.h"

#include <utility>

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
