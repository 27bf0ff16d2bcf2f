// Which tokens of a text are scored.
#include <algorithm>
#include <limits>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/eval.h"
#include "src/eval/rng.h"

namespace ropewalk {
namespace {

[[noreturn]] void TooShort(const TokenText& text, int64_t needed, const std::string& what,
                           const std::string& advice) {
  throw Error(ErrorCode::kInvalidArgument, "the text is too short: " + what + " needs " +
                                               std::to_string(needed) + " tokens, the text has " +
                                               std::to_string(text.ids.size()) + "; " + advice);
}

EvalWindow MakeWindow(const TokenText& text, int64_t text_begin, int64_t length,
                      int64_t score_begin, const std::optional<int32_t>& bos) {
  EvalWindow window;
  window.ids.reserve(static_cast<size_t>(length));
  if (bos) window.ids.push_back(*bos);
  const auto first = text.ids.begin() + text_begin;
  window.ids.insert(window.ids.end(), first, first + (length - (bos ? 1 : 0)));
  window.text_begin = text_begin;
  window.score_begin = score_begin;
  return window;
}

// Where the scored tokens of each anchor end, in tokens of the text. Stratified: anchor i lies in
// the i-th of equal parts of the room there is, so anchors are spread and never overlap.
std::vector<int64_t> AnchorEnds(const TokenText& text, const Protocol& protocol,
                                int64_t longest_length, bool bos) {
  const int64_t tokens = static_cast<int64_t>(text.ids.size());
  const int64_t k = protocol.scored_per_anchor;
  const int64_t first = longest_length - (bos ? 1 : 0);  // room in front at the longest length
  const int64_t anchors = tokens < first ? 0 : 1 + (tokens - first) / k;  // that there is room for
  // Of more anchors than any text has tokens the product is no number: it saturates.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const int64_t others =
      protocol.anchors - 1 > (kMost - first) / k ? kMost - first : (protocol.anchors - 1) * k;
  const int64_t needed = first + others;
  if (tokens < needed) {
    const int64_t fits = tokens - others + (bos ? 1 : 0);
    std::string advice = "give a longer text";
    if (fits > k) advice += ", or lengths up to " + std::to_string(fits);
    if (anchors > 0) advice += ", or --anchors " + std::to_string(anchors);
    TooShort(text, needed,
             protocol.Name() + " with " + std::to_string(protocol.anchors) + " anchors at length " +
                 std::to_string(longest_length),
             advice);
  }
  internal::SplitMix64 rng(protocol.seed);
  const double room = static_cast<double>(tokens - needed + 1);
  std::vector<int64_t> ends;
  for (int64_t i = 0; i < protocol.anchors; ++i) {
    const double share = (static_cast<double>(i) + rng.Uniform()) / protocol.anchors;
    ends.push_back(first + i * k + std::min(tokens - needed, static_cast<int64_t>(share * room)));
  }
  return ends;
}

// Every token of the text is scored once, but for its first where no BOS stands in front.
std::vector<EvalWindow> SlidingWindows(const TokenText& text, const Protocol& protocol,
                                       int64_t length, const std::optional<int32_t>& bos) {
  if (protocol.stride < 1 || protocol.stride >= length) {
    throw Error(ErrorCode::kInvalidArgument,
                protocol.Name() + " cannot score length " + std::to_string(length) +
                    ": the stride has to be from 1 to " + std::to_string(length - 1) +
                    ", so that each scored token has another in front; windows that do not overlap "
                    "are --protocol windows");
  }
  const int64_t tokens = static_cast<int64_t>(text.ids.size());
  const int64_t in_front = bos ? 1 : 0;
  std::vector<EvalWindow> windows;
  int64_t scored_end = 0;  // of the text
  for (int64_t begin = 0; scored_end < tokens; begin += protocol.stride) {
    if (protocol.anchors > 0 && static_cast<int64_t>(windows.size()) == protocol.anchors) break;
    const int64_t end = std::min(tokens, begin + length - in_front);
    const int64_t score_begin = windows.empty() ? 1 : in_front + scored_end - begin;
    windows.push_back(MakeWindow(text, begin, in_front + end - begin, score_begin, bos));
    scored_end = end;
  }
  return windows;
}

std::vector<EvalWindow> WholeWindows(const TokenText& text, const Protocol& protocol,
                                     int64_t length, int64_t longest_length,
                                     std::optional<int32_t> bos_id) {
  if (protocol.bos && !bos_id) {
    throw Error(ErrorCode::kInvalidArgument,
                "BOS was asked for, but the model names no BOS token; use --no-bos");
  }
  const std::optional<int32_t> bos = protocol.bos ? bos_id : std::nullopt;
  const int64_t per_window = length - (bos ? 1 : 0);  // tokens of text
  std::vector<EvalWindow> windows;
  if (protocol.kind == Protocol::Kind::kAligned) {
    const int64_t k = protocol.scored_per_anchor;
    if (k < 1 || k >= length || protocol.anchors < 1 || length > longest_length) {
      throw Error(ErrorCode::kInvalidArgument,
                  protocol.Name() + " with " + std::to_string(protocol.anchors) +
                      " anchors cannot score length " + std::to_string(length) +
                      ": it needs at least one anchor and a length of at least K + 1 = " +
                      std::to_string(k + 1) + "; use a smaller K, such as aligned:" +
                      std::to_string(std::max<int64_t>(1, length / 2)));
    }
    for (const int64_t end : AnchorEnds(text, protocol, longest_length, protocol.bos)) {
      windows.push_back(MakeWindow(text, end - per_window, length, length - k, bos));
    }
    return windows;
  }
  if (length < 4) {
    throw Error(
        ErrorCode::kInvalidArgument,
        protocol.Name() + ": expected a length of at least 4, got " + std::to_string(length));
  }
  int64_t count = static_cast<int64_t>(text.ids.size()) / per_window;  // that do not overlap
  if (count == 0) {
    TooShort(
        text, per_window, protocol.Name() + " at length " + std::to_string(length),
        "give a longer text, or lengths up to " + std::to_string(text.ids.size() + (bos ? 1 : 0)));
  }
  if (protocol.kind == Protocol::Kind::kSliding) {
    return SlidingWindows(text, protocol, length, bos);
  }
  if (protocol.anchors > 0) count = std::min(count, protocol.anchors);
  const int64_t score_begin = protocol.kind == Protocol::Kind::kHalf ? length / 2 + 1 : 1;
  for (int64_t i = 0; i < count; ++i) {
    windows.push_back(MakeWindow(text, i * per_window, length, score_begin, bos));
  }
  return windows;
}

// Leaves the prefix of each window out of what it scores. Windows that would score other tokens than
// those of their neighbours, or of other lengths, are an error.
void ScoreBehindPrefix(const Protocol& protocol, int64_t length, std::vector<EvalWindow>& windows) {
  using Kind = Protocol::Kind;
  const int64_t prefix = protocol.prefix;
  for (size_t w = 0; w < windows.size(); ++w) {
    EvalWindow& window = windows[w];
    const auto tokens = static_cast<int64_t>(window.ids.size());
    const bool fixed =
        protocol.kind == Kind::kAligned || (protocol.kind == Kind::kSliding && w > 0);
    if (prefix < tokens && (!fixed || window.score_begin >= prefix)) {
      window.score_begin = std::max(window.score_begin, prefix);
      continue;
    }
    const std::string rest = std::to_string(std::max<int64_t>(1, tokens - prefix));
    throw Error(
        ErrorCode::kInvalidArgument,
        "prefix: of a window of " + std::to_string(tokens) + " tokens a prefix of " +
            std::to_string(prefix) + " leaves " +
            std::to_string(std::max<int64_t>(0, tokens - prefix)) + ", but " + protocol.Name() +
            " scores " + std::to_string(tokens - window.score_begin) + "; give a shorter prefix" +
            (prefix < tokens && fixed
                 ? std::string(protocol.kind == Kind::kAligned ? ", or --protocol aligned:"
                                                               : ", or --protocol sliding:") +
                       rest
                 : ", or a length above " + std::to_string(std::max(length, prefix))));
  }
}

}  // namespace

std::vector<EvalWindow> MakeWindows(const TokenText& text, const Protocol& protocol, int64_t length,
                                    int64_t longest_length, std::optional<int32_t> bos_id) {
  std::vector<EvalWindow> windows = WholeWindows(text, protocol, length, longest_length, bos_id);
  if (protocol.prefix > 0) ScoreBehindPrefix(protocol, length, windows);
  return windows;
}

}  // namespace ropewalk
