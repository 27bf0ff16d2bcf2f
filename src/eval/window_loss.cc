// The loss of a cell over some of its windows.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "src/eval/recommend.h"

namespace ropewalk::internal {
namespace {

constexpr std::string_view kSliding = "sliding:";

// The number behind `mark`; 0 without one.
int64_t NumberBehind(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  int64_t number = 0;
  if (at == std::string_view::npos) return number;
  std::from_chars(text.data() + at + mark.size(), text.data() + text.size(), number);
  return number;
}

bool IsAligned(const Cell& c) { return c.protocol.starts_with("aligned"); }

}  // namespace

std::vector<double> TokensOfWindows(const Cell& c) {
  const std::size_t n = c.window_nll.size();
  std::vector<double> tokens(n, 1);
  if (n < 2 || !c.protocol.starts_with(kSliding)) return tokens;
  const int64_t stride = NumberBehind(c.protocol, kSliding);
  const int64_t first = c.length - std::max<int64_t>(1, NumberBehind(c.protocol, ", prefix "));
  const int64_t last = c.scored_tokens - first - stride * (static_cast<int64_t>(n) - 2);
  if (first < 1 || last < 1 || last > stride) return tokens;
  std::ranges::fill(tokens, static_cast<double>(stride));
  tokens.front() = static_cast<double>(first);
  tokens.back() = static_cast<double>(last);
  return tokens;
}

int64_t SharedWindows(const Cell& a, const Cell& b) {
  const bool pair = a.length == b.length || (IsAligned(a) && IsAligned(b));
  if (!pair || a.window_nll.empty() || b.window_nll.empty()) return kAllWindows;
  if (a.window_nll.size() == b.window_nll.size()) return kAllWindows;
  return static_cast<int64_t>(std::min(a.window_nll.size(), b.window_nll.size()));
}

int64_t CommonWindows(const std::vector<const Cell*>& here) {
  int64_t windows = kAllWindows;
  for (const Cell* c : here) {
    if (c->race_exit || c->window_nll.empty()) continue;
    windows = std::min(windows, static_cast<int64_t>(c->window_nll.size()));
  }
  return windows;
}

double LossOver(const Cell& c, int64_t windows) {
  const std::vector<double> tokens = TokensOfWindows(c);
  const std::size_t n = std::min(tokens.size(), static_cast<std::size_t>(windows));
  // Where tokens are not known the order has the mean that differences have.
  const bool unknown = n > 1 && c.protocol.starts_with(kSliding) && tokens.front() == 1;
  if (n == tokens.size() && !unknown) return c.mean_nll;
  double sum = 0, all = 0;
  for (std::size_t w = 0; w < n; ++w) {
    sum += tokens[w] * c.window_nll[w];
    all += tokens[w];
  }
  return sum / all;
}

double PerplexityOver(const Cell& c, int64_t windows) {
  const bool whole = static_cast<int64_t>(c.window_nll.size()) <= windows;
  return whole ? c.perplexity : std::exp(LossOver(c, windows));
}

std::string WindowsText(int64_t windows) {
  return fmt::format("{} window{}", windows, windows == 1 ? "" : "s");
}

std::string OverBoth(int64_t windows) {
  return windows == kAllWindows ? ""
                                : fmt::format(" over the {} that both have", WindowsText(windows));
}

}  // namespace ropewalk::internal
