#include "ropewalk/plan/layer_bias.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <initializer_list>

namespace ropewalk {
namespace {

std::string DescribeAlibi(const AlibiBias& alibi, int64_t heads) {
  const SlopeForm form = alibi.Lower(heads, 0);
  const auto [least, most] = std::minmax_element(form.behind.begin(), form.behind.end());
  std::string text =
      fmt::format("ALiBi, {} slopes {:.4g} to {:.4g} per token", heads, *most, *least);
  if (!alibi.slopes.empty()) {
    text += ", learned";
  } else if (alibi.rule == AlibiSlopes::kGeometric || std::has_single_bit<uint64_t>(heads)) {
    text += fmt::format(", 2^(-{:g}k/{})", alibi.max_bias, heads);
  } else {
    const auto n = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
    text += fmt::format(", 2^(-{:g}k/{}), then 2^(-{:g}(2k-1)/{})", alibi.max_bias, n,
                        alibi.max_bias, 2 * n);
  }
  if (alibi.bfloat16) text += ", rounded to bfloat16";
  text += alibi.scale == 1 ? ", added to scaled scores"
                           : fmt::format(", added before scores are scaled by {:.6g}", alibi.scale);
  return text;
}

std::string DescribeT5(const T5LayerBias& t5) {
  return fmt::format(
      "T5 buckets: {} over distances up to {}, {}; one learned number for each head and bucket{}, "
      "added to {} scores",
      t5.bias.buckets, t5.bias.last_distance,
      t5.bias.bidirectional ? "both directions" : "only keys before the query",
      t5.per_layer ? " in every layer" : ", the same in all layers",
      t5.scaled ? "scaled" : "unscaled");
}

std::string DescribeDeberta(const DebertaLayerBias& deberta) {
  const DebertaBias& b = deberta.bias;
  return fmt::format(
      "DeBERTa's disentangled terms: {}{}{}; {} up to {}{}; {}; scores over sqrt({} head_dim)",
      deberta.content_to_position ? "content to position" : "", deberta.Terms() == 3 ? " and " : "",
      deberta.position_to_content ? "position to content" : "",
      b.buckets > 0 ? fmt::format("{} log buckets per side", b.buckets) : "one row per distance",
      b.max_position, deberta.normalized_embedding ? ", normalised" : "",
      deberta.shared_keys ? "the layers' own matrices of q and k" : "matrices of their own",
      deberta.Terms());
}

std::string DescribeTransformerXl(const TransformerXlBias& xl) {
  return fmt::format(
      "Transformer-XL's terms: sinusoids of the distance, {}{}, projected in every layer, against "
      "the query and a learned vector",
      xl.causal ? "only keys before the query" : "both directions",
      xl.clamp_distance > 0 ? fmt::format(", clamped to distance {}", xl.clamp_distance) : "");
}

std::string DescribeNezha(const NezhaLayerBias& nezha) {
  return fmt::format(
      "Shaw's relative positions with NEZHA's sinusoidal rows: distances clipped to {} on either "
      "side, added to keys and to values, the same in all heads and layers",
      nezha.reach);
}

const char* Sides(bool causal) { return causal ? "keys before the query" : "both directions"; }

std::string DescribeKerple(const KerpleBias& kerple) {
  return fmt::format("KERPLE, {}, {}; r1 and r2 learned for each head",
                     kerple.kernel == KerpleKernel::kLog ? "-r1 ln(1 + r2 d)" : "-r1 d^r2",
                     Sides(kerple.causal));
}

std::string DescribeShaw(const ShawLayerBias& shaw) {
  return fmt::format(
      "Shaw's relative positions: learned rows of distances clipped to {} before and {} after the "
      "query, added to keys{}, {}",
      shaw.left, shaw.right, shaw.values ? " and to values" : "",
      shaw.per_head ? "for each head" : "the same in all heads");
}

std::string DescribeTupe(const TupeLayerBias& tupe) {
  return fmt::format(
      "TUPE: products of {} learned positions{}{}; scores over sqrt(2 head_dim)", tupe.positions,
      tupe.relative
          ? fmt::format(", {} buckets of distances up to {}", tupe.buckets, tupe.last_distance)
          : "",
      tupe.reset ? ", learned values for the first token" : "");
}

// Learned values are hashed where the bias has them; a configuration has none.
struct HashMethod {
  int64_t heads;
  Hasher& hasher;
  void operator()(const AlibiBias& alibi) const {
    const SlopeForm form = alibi.Lower(heads, 0);
    hasher.UpdateValue(heads);
    for (const float slope : form.behind) hasher.UpdateValue(slope);
    hasher.UpdateValue(static_cast<uint8_t>(alibi.bfloat16));
    hasher.UpdateValue(static_cast<uint8_t>(!form.ahead.empty()));
    for (const float slope : form.ahead) hasher.UpdateValue(slope);
  }
  void operator()(const T5LayerBias& t5) const {
    t5.bias.Bucket(0);  // refuses numbers that make no buckets
    Integers({heads, t5.bias.buckets, t5.bias.last_distance, t5.bias.bidirectional, t5.per_layer});
    if (t5.scaled) Integers({1});
    Learned({&t5.bias.embedding});
  }
  void operator()(const DebertaLayerBias& deberta) const {
    const DebertaBias& b = deberta.bias;
    b.Row(0);
    Integers({heads, b.buckets, b.max_position, deberta.content_to_position,
              deberta.position_to_content, deberta.shared_keys, deberta.normalized_embedding});
    Learned({&b.embedding, &b.key_projection, &b.key_projection_bias, &b.query_projection,
             &b.query_projection_bias});
  }
  void operator()(const TransformerXlBias& xl) const {
    // model_dim gives the frequencies of the sinusoids.
    Integers({heads, xl.model_dim, xl.causal, xl.clamp_distance});
    Learned({&xl.projection, &xl.content_bias, &xl.position_bias});
  }
  void operator()(const NezhaLayerBias& nezha) const {
    nezha.Shaw();  // refuses numbers that make no rows
    Integers({heads, nezha.reach, nezha.head_dim});
  }
  void operator()(const LearnedAlibiLayerBias& alibi) const { Integers({heads, alibi.causal}); }
  void operator()(const KerpleBias& kerple) const {
    Integers({heads, static_cast<int64_t>(kerple.kernel), kerple.causal});
    Learned({&kerple.r1, &kerple.r2});
  }
  void operator()(const SandwichBias& sandwich) const {
    Integers({heads, sandwich.dim, sandwich.causal});
    hasher.UpdateValue(sandwich.base);
  }
  void operator()(const FireLayerBias& fire) const { Integers({heads, fire.width}); }
  void operator()(const ShawLayerBias& shaw) const {
    Integers({heads, shaw.left, shaw.right, shaw.head_dim, shaw.values, shaw.per_head});
  }
  void operator()(const TupeLayerBias& tupe) const {
    Integers({heads, tupe.positions, tupe.head_dim, tupe.reset, tupe.relative});
    if (!tupe.relative) return;
    T5Bias{tupe.buckets, tupe.last_distance}.Bucket(0);
    Integers({tupe.buckets, tupe.last_distance});
  }
  void operator()(const CopeLayerBias& cope) const {
    Integers({heads, cope.rows, cope.head_dim, cope.per_head});
  }
  void operator()(const GateLayerBias& /*gate*/) const { Integers({heads}); }
  void Integers(std::initializer_list<int64_t> list) const {
    for (const int64_t number : list) hasher.UpdateValue(number);
  }
  void Learned(std::initializer_list<const std::vector<float>*> list) const {
    for (const std::vector<float>* numbers : list) {
      hasher.UpdateValue(static_cast<int64_t>(numbers->size()));
      hasher.Update(numbers->data(), numbers->size() * sizeof(float));
    }
  }
};

struct DescribeMethod {
  int64_t heads;
  std::string operator()(const AlibiBias& alibi) const { return DescribeAlibi(alibi, heads); }
  std::string operator()(const T5LayerBias& t5) const { return DescribeT5(t5); }
  std::string operator()(const DebertaLayerBias& deberta) const { return DescribeDeberta(deberta); }
  std::string operator()(const TransformerXlBias& xl) const { return DescribeTransformerXl(xl); }
  std::string operator()(const NezhaLayerBias& nezha) const { return DescribeNezha(nezha); }
  std::string operator()(const LearnedAlibiLayerBias& alibi) const {
    return fmt::format("ALiBi with {} slopes learned in every layer, {}", heads,
                       Sides(alibi.causal));
  }
  std::string operator()(const KerpleBias& kerple) const { return DescribeKerple(kerple); }
  std::string operator()(const SandwichBias& sandwich) const {
    return fmt::format("Sandwich: the products of sinusoids of {} elements with base {:g}, {}",
                       sandwich.dim, sandwich.base, Sides(sandwich.causal));
  }
  std::string operator()(const FireLayerBias& fire) const {
    return fmt::format(
        "FIRE: a learned network of {} hidden units of the distance relative to the query's "
        "position",
        fire.width);
  }
  std::string operator()(const ShawLayerBias& shaw) const { return DescribeShaw(shaw); }
  std::string operator()(const TupeLayerBias& tupe) const { return DescribeTupe(tupe); }
  std::string operator()(const CopeLayerBias& cope) const {
    return fmt::format("CoPE: {} learned rows of positions that count by content, {}", cope.rows,
                       cope.per_head ? "for each head" : "the same in all heads");
  }
  std::string operator()(const GateLayerBias& /*gate*/) const {
    return "forgetting gate: learned gates of the tokens between key and query";
  }
};

}  // namespace

ShawBias NezhaLayerBias::Shaw() const {
  ShawBias shaw;
  shaw.left = shaw.right = reach;
  shaw.head_dim = head_dim;
  shaw.key_rows = shaw.value_rows = ShawSinusoidalRows(reach, reach, head_dim, /*first=*/0);
  return shaw;
}

std::string Describe(const LayerBias& bias) {
  return std::visit(DescribeMethod{bias.heads}, bias.method);
}

void HashBias(const LayerBias& bias, Hasher& hasher) {
  hasher.UpdateValue(static_cast<uint8_t>(bias.method.index()));
  std::visit(HashMethod{bias.heads, hasher}, bias.method);
}

}  // namespace ropewalk
