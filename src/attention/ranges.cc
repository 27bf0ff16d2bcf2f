#include <algorithm>
#include <string>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/attention/form.h"

namespace ropewalk::internal {
namespace {

// A distance, and a window beyond it, stay in an int64.
constexpr int64_t kMostPosition = int64_t{1} << 52;

[[noreturn]] void RefuseRanges(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Attention: " + message);
}

void CheckSize(const char* name, size_t got, int64_t expected, const char* of) {
  if (static_cast<int64_t>(got) == expected) return;
  RefuseRanges(std::string(name) + ": expected " + std::to_string(expected) + ", one for each " +
               of + ", got " + std::to_string(got));
}

// Starts with the count at the end.
std::vector<int64_t> Documents(const char* name, std::span<const int64_t> starts, int64_t count) {
  std::vector<int64_t> ends(starts.begin(), starts.end());
  if (ends.empty()) ends.push_back(0);
  ends.push_back(count);
  const bool rise = ends.front() == 0 && std::is_sorted(ends.begin(), ends.end());
  if (!rise) {
    RefuseRanges(std::string(name) + ": expected starts from 0 on that never fall nor pass " +
                 std::to_string(count));
  }
  return ends;
}

void CheckRising(const char* name, std::span<const int64_t> positions,
                 const std::vector<int64_t>& documents) {
  for (size_t d = 0; d + 1 < documents.size(); ++d) {
    for (int64_t t = documents[d]; t < documents[d + 1]; ++t) {
      const bool falls = t > documents[d] && positions[t] < positions[t - 1];
      if (falls || positions[t] < -kMostPosition || positions[t] > kMostPosition) {
        RefuseRanges(std::string(name) +
                     ": expected positions within 2^52 that do not fall within a document, got " +
                     std::to_string(positions[t]) + " at " + std::to_string(t));
      }
    }
  }
}

bool Consecutive(std::span<const int64_t> positions, const std::vector<int64_t>& documents) {
  for (size_t d = 0; d + 1 < documents.size(); ++d) {
    for (int64_t j = documents[d] + 1; j < documents[d + 1]; ++j) {
      if (positions[j] != positions[j - 1] + 1) return false;
    }
  }
  return true;
}

struct Finder {
  const AttentionArgs& args;
  const int64_t queries, keys;
  const std::vector<int64_t> key_documents, query_documents;
  QueryRanges ranges;

  int64_t KeyPosition(int64_t j) const {
    return args.key_positions.empty() ? j : args.key_positions[j];
  }
  int64_t QueryPosition(int64_t t) const {
    return args.query_positions.empty() ? KeyPosition(keys - queries + t) : args.query_positions[t];
  }
  // The first key from begin to end whose position is at least this one, else end.
  int64_t FirstKey(int64_t begin, int64_t end, int64_t position) const {
    if (args.key_positions.empty()) return std::clamp(position, begin, end);
    const auto all = args.key_positions.begin();
    return std::lower_bound(all + begin, all + end, position) - all;
  }

  void FindDocument(size_t d) {
    const int64_t begin = key_documents[d], end = key_documents[d + 1];
    const int64_t window = std::min(args.window_tokens, 2 * kMostPosition);
    const bool causal = args.mask == AttentionMask::kCausal;
    const int64_t ahead = causal ? 0 : window - 1;  // how far the last key that is seen may be
    for (int64_t t = query_documents[d]; t < query_documents[d + 1]; ++t) {
      const int64_t position = QueryPosition(t);
      ranges.begin[t] = window == 0 ? begin : FirstKey(begin, end, position - window + 1);
      ranges.end[t] = !causal && window == 0 ? end : FirstKey(begin, end, position + ahead + 1);
      ranges.base[t] = begin < end ? position - KeyPosition(begin) + begin : 0;
    }
  }
};

std::vector<int64_t> QueryDocuments(const AttentionArgs& args, const std::vector<int64_t>& keys) {
  const int64_t queries = args.q.shape[0];
  if (!args.query_document_starts.empty()) {
    CheckSize("query_document_starts", args.query_document_starts.size(),
              static_cast<int64_t>(keys.size()) - 1, "document");
    return Documents("query_document_starts", args.query_document_starts, queries);
  }
  if (!args.query_positions.empty() && keys.size() > 2) {
    RefuseRanges(
        "query_document_starts: expected one for each document, because query_positions are "
        "given");
  }
  std::vector<int64_t> documents(keys);
  for (int64_t& start : documents) start = std::max<int64_t>(0, start - (keys.back() - queries));
  if (!args.query_positions.empty()) documents = {0, queries};
  return documents;
}

}  // namespace

QueryRanges FindRanges(const AttentionArgs& args) {
  const int64_t queries = args.q.shape[0], keys = args.cache->tokens();
  if (!args.query_positions.empty()) {
    CheckSize("query_positions", args.query_positions.size(), queries, "query");
  }
  if (!args.key_positions.empty()) {
    CheckSize("key_positions", args.key_positions.size(), keys, "key of the cache");
  }
  const std::vector<int64_t> key_documents =
      Documents("document_starts", args.document_starts, keys);
  Finder f{args, queries, keys, key_documents, QueryDocuments(args, key_documents), {}};
  if (!args.key_positions.empty()) {
    CheckRising("key_positions", args.key_positions, key_documents);
    f.ranges.consecutive = Consecutive(args.key_positions, key_documents);
  }
  if (!args.query_positions.empty()) {
    CheckRising("query_positions", args.query_positions, f.query_documents);
  }
  f.ranges.begin.resize(static_cast<size_t>(queries));
  f.ranges.end.resize(static_cast<size_t>(queries));
  f.ranges.base.resize(static_cast<size_t>(queries));
  for (size_t d = 0; d + 1 < key_documents.size(); ++d) f.FindDocument(d);
  const ScoreForm* form = FormOf(args);
  const bool pair = form != nullptr && std::holds_alternative<PairForm>(*form);
  if (pair || !f.ranges.consecutive) {
    f.ranges.key_positions.resize(static_cast<size_t>(keys));
    for (int64_t j = 0; j < keys; ++j) f.ranges.key_positions[j] = f.KeyPosition(j);
    f.ranges.query_positions.resize(static_cast<size_t>(queries));
    for (int64_t t = 0; t < queries; ++t) f.ranges.query_positions[t] = f.QueryPosition(t);
  }
  return std::move(f.ranges);
}

}  // namespace ropewalk::internal
