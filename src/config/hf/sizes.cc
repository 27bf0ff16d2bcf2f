// Sizes of a Hugging Face model.
#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/config/block.h"
#include "src/config/hf/config.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

class SizeReader {
 public:
  SizeReader(const HfSource& source, ModelConfig& c)
      : source_(source), c_(c), strict_(source.family.Runs() && !source.nested) {}

  // 0 where a model that is not run here leaves it out.
  int64_t Read(const char* key, int64_t high, int64_t fallback, bool required) const {
    if (const auto v = source_.Int(key, 1, high)) return *v;
    if (!strict_ && fallback > 0) {
      c_.plan.notes.push_back(
          fmt::format("{} is absent: {}, the default of {}", key, fallback, source_.family.name));
      return fallback;
    }
    if (strict_ || required) source_.top.Fail(key, "an integer");
    return 0;
  }

 private:
  const HfSource& source_;
  ModelConfig& c_;
  bool strict_;
};

// One number per layer (Gemma 3n), in a family that does not run here.
bool IsList(const HfSource& source, const char* key) {
  const json* value = source.family.Runs() ? nullptr : source.top.Find(key);
  return value != nullptr && value->is_array() && !value->empty();
}

int64_t LargestOf(const HfSource& source, const char* key) {
  const std::vector<double> list = *source.top.Numbers(key, 1, static_cast<double>(kMaxDim));
  return static_cast<int64_t>(*std::max_element(list.begin(), list.end()));
}

int64_t ReadKvHeads(const HfSource& source, const SizeReader& reader, const ModelConfig& c) {
  const Family& family = source.family;
  // Falcon: one key head for all unless the newer architecture says how many.
  const bool counted = source.top.Has("n_head_kv");  // Falcon 40B as first published
  if (source.top.Bool("multi_query").value_or(family.Has(kMultiQuery) && !counted) &&
      !source.top.Bool("new_decoder_architecture").value_or(false)) {
    return 1;
  }
  if (source.top.Bool("multi_query_attention") == false) return c.heads;  // ChatGLM
  if (family.Runs() && family.sizes.kv_heads > 0) {
    return reader.Read("num_key_value_heads", kMaxDim, family.sizes.kv_heads, true);
  }
  if (const auto v = source.Int("num_key_value_heads", 1, kMaxDim)) return *v;
  return source.nested && family.sizes.kv_heads > 0 ? family.sizes.kv_heads : c.heads;
}

// [qk_nope_head_dim | qk_rope_head_dim]; head_dim, where a file has it, is one of the sums.
int64_t ReadLatentHeadDim(const HfSource& source) {
  const JsonObject& top = source.top;
  const int64_t nope =
      top.Require(top.Int("qk_nope_head_dim", 0, kMaxHeadDim), "qk_nope_head_dim", "an integer");
  const int64_t rope =
      top.Require(top.Int("qk_rope_head_dim", 2, kMaxHeadDim), "qk_rope_head_dim", "an integer");
  for (const char* key : {"head_dim", "qk_head_dim"}) {
    const auto given = top.Int(key, 1, kMaxHeadDim);
    if (given && *given != rope && *given != nope + rope) {
      Contradiction(top.where(), key, fmt::format("{}", *given),
                    "qk_nope_head_dim + qk_rope_head_dim", fmt::format("{} + {}", nope, rope));
    }
  }
  return nope + rope;
}

void ReadHeadDim(const HfSource& source, ModelConfig& c) {
  const Family& family = source.family;
  if (family.Has(kMla)) {
    c.head_dim = ReadLatentHeadDim(source);
    return;
  }
  if (const auto head_dim = source.Int("head_dim", 2, kMaxHeadDim)) {
    c.head_dim = *head_dim;
    return;
  }
  if (family.sizes.head_dim > 0) {
    c.head_dim = family.sizes.head_dim;
    c.plan.notes.push_back(
        fmt::format("head_dim is absent: {}, the default of {}", c.head_dim, family.name));
    return;
  }
  if (c.hidden == 0 || c.heads == 0) {
    if (family.other != OtherEncoding::kNone) return;  // nothing rotates
    source.top.Fail(c.hidden == 0 ? "hidden_size" : "num_attention_heads",
                    "an integer, because head_dim is absent");
  }
  if (c.hidden % c.heads != 0) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: hidden_size {} is no multiple of num_attention_heads {} and "
                            "head_dim is absent",
                            source.top.where(), c.hidden, c.heads));
  }
  c.head_dim = c.hidden / c.heads;
}

}  // namespace

void ReadHfSizes(const HfSource& source, ModelConfig& c) {
  const SizeReader reader(source, c);
  const DefaultSizes& sizes = source.nested ? source.family.sizes : DefaultSizes{};
  c.layers = reader.Read("num_hidden_layers", kMaxLayers, sizes.layers, true);
  c.hidden = reader.Read("hidden_size", kMaxDim, sizes.hidden, false);
  c.heads = reader.Read("num_attention_heads", kMaxDim, sizes.heads, false);
  const Block* block = source.family.block;
  const bool four = block != nullptr && block->feed_forward_is_4_hidden;
  c.feed_forward = four ? source.Int("intermediate_size", 1, kMaxDim).value_or(4 * c.hidden)
                   : IsList(source, "intermediate_size")
                       ? LargestOf(source, "intermediate_size")
                       : reader.Read("intermediate_size", kMaxDim, 0, false);
  c.vocab = reader.Read("vocab_size", kMaxDim, 0, false);
  c.kv_heads = ReadKvHeads(source, reader, c);
  ReadHeadDim(source, c);
  CheckSizes(c, source.top.where());
}

}  // namespace ropewalk::internal
