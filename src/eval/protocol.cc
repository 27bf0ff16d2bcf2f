#include <charconv>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/eval.h"

namespace ropewalk {

std::string Protocol::Name() const {
  switch (kind) {
    case Kind::kAligned:
      return "aligned:" + std::to_string(scored_per_anchor);
    case Kind::kWindows:
      return "windows";
    case Kind::kHalf:
      return "half";
  }
  return "";
}

Protocol Protocol::Parse(const std::string& s) {
  Protocol protocol;
  if (s == "aligned") return protocol;
  if (s == "windows" || s == "half") {
    protocol.kind = s == "half" ? Kind::kHalf : Kind::kWindows;
    protocol.anchors = 0;  // every window of the text
    return protocol;
  }
  if (s.starts_with("aligned:")) {
    const char* begin = s.data() + 8;
    const char* end = s.data() + s.size();
    const auto [p, error] = std::from_chars(begin, end, protocol.scored_per_anchor);
    if (error == std::errc() && p == end && protocol.scored_per_anchor >= 1) return protocol;
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      "protocol: expected aligned, aligned:K (K >= 1 tokens scored at each anchor), windows "
      "or half, got '" +
          s + "'");
}

}  // namespace ropewalk
