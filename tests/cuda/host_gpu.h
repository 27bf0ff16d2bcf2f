// What the host has in the place of a stream and of a graph.
#pragma once

#include <functional>
#include <vector>

struct CUgraph_st {
  std::vector<std::function<void()>> launches;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> launches;
};
struct CUstream_st {
  CUgraph_st* capture = nullptr;
};

namespace ropewalk {

// Now, or when the graph is launched that `stream` is captured for.
void LaunchOnHost(void* stream, const std::function<void()>& launch);

}  // namespace ropewalk
