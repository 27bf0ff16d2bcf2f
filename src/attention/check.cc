#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/attention/form.h"
#include "src/base/addressable.h"

namespace ropewalk::internal {
namespace {

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Attention: " + message);
}

void CheckView(const char* name, const TensorView& view, int64_t head_dim) {
  if (view.dtype != DType::kF32 || view.device != Device::kCpu || view.rank != 3 ||
      view.shape[2] != head_dim || (head_dim > 1 && view.strides[2] != 1)) {
    Refuse(std::string(name) + ": expected float32 [tokens, heads, " + std::to_string(head_dim) +
           "] with a last stride of 1, got " + Name(view.dtype) + " " + view.ShapeString());
  }
  CheckAddressable((std::string("Attention: ") + name).c_str(), view);
}

// Whether two rows of [tokens, heads, head_dim] share elements, in steps of the smaller number of
// the two: row (t, h) and row (t + a, h + b) do where |a token_stride + b head_stride| < head_dim.
bool RowsOverlap(const TensorView& view) {
  int few = 0, many = 1;
  if (view.shape[few] > view.shape[many]) std::swap(few, many);
  const int64_t last = view.shape[many] - 1, width = view.shape[2];
  const int64_t stride = last == 0 ? 0 : std::abs(view.strides[many]);
  if (last > 0 && stride < width) return true;
  for (int64_t b = 1; b < view.shape[few]; ++b) {
    // The rows along `many` that begin next to this one, on either side.
    const int64_t at = b * std::abs(view.strides[few]);
    const int64_t before = stride == 0 ? 0 : std::min(at / stride, last);
    for (const int64_t a : {before, std::min(before + 1, last)}) {
      if (std::abs(at - a * stride) < width) return true;
    }
  }
  return false;
}

// First and last byte that the view can touch.
std::pair<uintptr_t, uintptr_t> Extent(const TensorView& view) {
  int64_t low = 0, high = 0;
  for (int i = 0; i < view.rank; ++i) {
    const int64_t reach = (view.shape[i] - 1) * view.strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const auto base = reinterpret_cast<uintptr_t>(view.data);
  return {base + low * sizeof(float), base + high * sizeof(float) + sizeof(float) - 1};
}

void CheckSpan(const char* name, std::span<const float> values, int64_t expected, const char* of) {
  if (values.empty()) return;
  if (static_cast<int64_t>(values.size()) != expected) {
    Refuse(std::string(name) + ": expected " + std::to_string(expected) + ", one for each " + of +
           ", got " + std::to_string(values.size()));
  }
  for (const float x : values) {
    if (!std::isfinite(x)) {
      Refuse(std::string(name) + ": expected finite numbers, got " + std::to_string(x));
    }
  }
}

void CheckNumbers(const AttentionArgs& args, int64_t tokens, int64_t heads) {
  if (!(args.soft_cap >= 0) || !std::isfinite(args.soft_cap)) {
    Refuse("soft_cap: expected 0 (none) or more, got " + std::to_string(args.soft_cap));
  }
  CheckSpan("sinks", args.sinks, heads, "query head");
  CheckSpan("temperatures", args.temperatures, tokens, "query");
  for (const auto& [name, room] :
       {std::pair{"log_sum_exp", args.log_sum_exp}, std::pair{"entropy", args.entropy}}) {
    if (room.empty() || static_cast<int64_t>(room.size()) == tokens * heads) continue;
    Refuse(std::string(name) + ": expected room for " + std::to_string(tokens * heads) +
           " numbers, got " + std::to_string(room.size()));
  }
}

// They are added to values, and a form knows one head_dim.
void CheckValueRows(const AttentionArgs& args) {
  const ScoreForm* form = FormOf(args);
  const auto* content = form == nullptr ? nullptr : std::get_if<ContentForm>(form);
  const int64_t value_dim = args.cache->value_dim();
  if (content == nullptr || content->value_rows.empty() || content->head_dim == value_dim) return;
  Refuse("ContentForm.value_rows: have head_dim = " + std::to_string(content->head_dim) +
         " elements, and values of this cache " + std::to_string(value_dim) +
         "; expected values as wide as keys");
}

}  // namespace

void CheckAddressable(const char* name, const TensorView& view) {
  for (int i = 0; i < view.rank; ++i) {
    if (view.shape[i] < 2 || Addressable(view.shape[i], view.strides[i])) continue;
    throw Error(ErrorCode::kInvalidArgument, std::string(name) + ": shape " + view.ShapeString() +
                                                 " with stride " + std::to_string(view.strides[i]) +
                                                 " is not addressable");
  }
}

void CheckWritten(const char* name, const TensorView& view) {
  if (view.empty() || !RowsOverlap(view)) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(name) + ": expected heads of " + view.ShapeString() +
                  " that share no memory, as they are written, got strides of " +
                  std::to_string(view.strides[0]) + " and " + std::to_string(view.strides[1]));
}

void CheckOut(const char* name, const TensorView& out) {
  CheckView(name, out, out.rank == 3 ? out.shape[2] : 0);
  if (out.data == nullptr && out.shape[0] > 0)
    Refuse(std::string(name) + ": expected data, got null");
  CheckWritten((std::string("Attention: ") + name).c_str(), out);
}

void CheckAttention(const AttentionArgs& args, bool writes_out) {
  if (args.cache == nullptr) Refuse("cache: expected a KvCache, got null");
  const KvCache& cache = *args.cache;
  CheckView("q", args.q, cache.head_dim());
  if (writes_out) CheckView("out", args.out, cache.value_dim());
  const int64_t tokens = args.q.shape[0], heads = args.q.shape[1];
  if (!writes_out && args.query_positions.empty()) {
    Refuse("query_positions: expected those of the queries, whose keys come in parts");
  }
  if (writes_out && (args.out.shape[0] != tokens || args.out.shape[1] != heads)) {
    Refuse("out: expected the tokens and heads of q, " + args.q.ShapeString() + ", got " +
           args.out.ShapeString());
  }
  if (heads < 1 || heads % cache.kv_heads() != 0) {
    Refuse("q: expected a multiple of the cache's " + std::to_string(cache.kv_heads()) +
           " key heads, got " + std::to_string(heads) + " heads");
  }
  if (tokens < 0 || (tokens > cache.tokens() && args.query_positions.empty())) {
    Refuse("q: has " + std::to_string(tokens) + " tokens but the cache holds " +
           std::to_string(cache.tokens()) +
           "; append their keys and values first, or "
           "give query_positions");
  }
  if (args.scale && (!(*args.scale > 0) || !std::isfinite(*args.scale))) {
    Refuse("scale: expected a finite number above 0, or kScaleByHeadDim, got " +
           std::to_string(*args.scale));
  }
  if (args.window_tokens < 0) {
    Refuse("window_tokens: expected 0 (all) or more, got " + std::to_string(args.window_tokens));
  }
  CheckNumbers(args, tokens, heads);
  if (tokens == 0) return;
  if (args.prepared != nullptr) {
    const PreparedForm& f = *args.prepared;
    if (args.form != nullptr) Refuse("form and prepared: expected one of the two");
    if (f.heads() != heads || f.head_dim() != cache.head_dim()) {
      Refuse("prepared: expected a form for " + std::to_string(heads) + " heads of " +
             std::to_string(cache.head_dim()) + ", got one for " + std::to_string(f.heads()) +
             " of " + std::to_string(f.head_dim()));
    }
  } else if (args.form != nullptr && args.gate_sums.queries.empty()) {
    CheckForm(*args.form, heads, cache.head_dim());
  }
  CheckValueRows(args);
  if (args.q.data == nullptr || (writes_out && args.out.data == nullptr)) {
    Refuse("q and out: expected data, got null");
  }
  if (!writes_out) return;
  CheckWritten("Attention: out", args.out);
  const auto [q_begin, q_end] = Extent(args.q);
  const auto [out_begin, out_end] = Extent(args.out);
  const bool same = args.q.data == args.out.data && args.q.strides[0] == args.out.strides[0] &&
                    args.q.strides[1] == args.out.strides[1] &&
                    args.q.shape[2] == args.out.shape[2];
  if (!same && q_begin <= out_end && out_begin <= q_end) {
    Refuse(
        "out: overlaps q without being q; give it the same strides and width or memory of its "
        "own");
  }
}

}  // namespace ropewalk::internal
