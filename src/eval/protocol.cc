#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/eval.h"
#include "ropewalk/eval/prepare.h"

namespace ropewalk {
namespace {

// The number of 1 or more behind `prefix`, where that is all of `s`.
std::optional<int64_t> Count(const std::string& s, const std::string& prefix) {
  if (!s.starts_with(prefix)) return std::nullopt;
  int64_t count = 0;
  const char* end = s.data() + s.size();
  const auto [p, error] = std::from_chars(s.data() + prefix.size(), end, count);
  return error == std::errc() && p == end && count >= 1 ? std::optional(count) : std::nullopt;
}

}  // namespace

namespace {

std::string NameOfKind(const Protocol& protocol) {
  using Kind = Protocol::Kind;
  switch (protocol.kind) {
    case Kind::kAligned:
      return "aligned:" + std::to_string(protocol.scored_per_anchor);
    case Kind::kWindows:
      return "windows";
    case Kind::kHalf:
      return "half";
    case Kind::kSliding:
      return "sliding:" + std::to_string(protocol.stride);
  }
  return "";
}

}  // namespace

std::string Protocol::Name() const {
  std::string name = NameOfKind(*this);
  if (prefix == 0) return name;
  return name + ", prefix " + std::to_string(prefix) + (prefix_encoded ? " to the encoder" : "");
}

bool Protocol::CanScore(int64_t length) const {
  if (kind == Kind::kAligned) return std::max<int64_t>(prefix, 1) <= length - scored_per_anchor;
  if (prefix >= length) return false;
  if (kind == Kind::kSliding && stride >= length) return false;
  return length >= 4;
}

Protocol Protocol::Parse(const std::string& s) {
  Protocol protocol;
  if (s == "aligned") {
    protocol.anchors = 0;  // settled with K
    return protocol;
  }
  if (s == "windows" || s == "half") {
    protocol.kind = s == "half" ? Kind::kHalf : Kind::kWindows;
    protocol.anchors = 0;  // every window of the text
    return protocol;
  }
  if (const auto k = Count(s, "aligned:")) {
    protocol.scored_per_anchor = *k;
    protocol.anchors = WindowsFor(*k);
    return protocol;
  }
  if (const auto stride = Count(s, "sliding:")) {
    protocol.kind = Kind::kSliding;
    protocol.stride = *stride;
    protocol.anchors = 0;
    return protocol;
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      "protocol: expected aligned, aligned:K (K >= 1 tokens scored at each anchor), windows, half "
      "or sliding:STRIDE (STRIDE >= 1 tokens from window to window), got '" +
          s + "'");
}

}  // namespace ropewalk
