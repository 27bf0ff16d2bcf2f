// Cases of include/ropewalk/absolute that compute with the embeddings: rows that multiply,
// complex layers, position convolutions.
#include "ropewalk/absolute/combine.h"
#include "ropewalk/absolute/complex_order.h"
#include "ropewalk/absolute/convolutional.h"
#include "tools/conformance/conformance.h"

namespace ropewalk::conformance {
namespace {

void AddRowsCases(std::vector<Json>& cases) {
  const MadeTensor rows = Make({5, 3}, 6);
  for (const bool multiply : {false, true}) {
    MadeTensor x = Make({2, 5, 3}, 5);
    if (multiply) {
      MultiplyRows(x.values, 2, rows.values);
    } else {
      AddRows(x.values, 2, rows.values, 0.25f);
    }
    Json c = {{"id", multiply ? "multiplicative" : "added"},
              {"method", multiply ? "multiply-rows" : "add-rows"},
              {"parameters", {{"rows", rows.json}}},
              {"x", x.json},
              {"out", Numbers(x.values)}};
    if (!multiply) c["parameters"]["scale"] = 0.25;
    cases.push_back(std::move(c));
  }
}

// Real and imaginary parts as two tensors.
struct MadeComplex {
  MadeComplex(const std::vector<int64_t>& shape, int seed)
      : re(Make(shape, seed)), im(Make(shape, seed + 1)) {}
  ComplexSpan<const float> Span() const { return {re.values, im.values}; }
  Json Spec() const { return {{"re", re.json}, {"im", im.json}}; }
  MadeTensor re, im;
};

void AddComplexLayers(std::vector<Json>& cases) {
  const MadeComplex x({3, 4}, 1), weight({2, 4}, 3), bias({2}, 5);
  std::vector<float> re(6), im(6);
  ComplexLinear(4, 2, x.Span(), weight.Span(), bias.Span(), {re, im});
  cases.push_back({{"id", "complex-linear"},
                   {"method", "complex-linear"},
                   {"parameters", {{"weight", weight.Spec()}, {"bias", bias.Spec()}}},
                   {"x", x.Spec()},
                   {"re", Numbers(re)},
                   {"im", Numbers(im)}});
  const MadeComplex q({3, 2, 4}, 1), k({5, 2, 4}, 3), v({5, 2, 4}, 5);
  for (const bool hermitian : {false, true}) {
    re.assign(3 * 2 * 4, 0);
    im.assign(3 * 2 * 4, 0);
    ComplexAttention({3, 5, 2, 4, true, hermitian}, q.Span(), k.Span(), v.Span(), {re, im});
    cases.push_back({{"id", hermitian ? "complex-attention.hermitian" : "complex-attention"},
                     {"method", "complex-attention"},
                     {"parameters", {{"heads", 2}, {"causal", true}, {"hermitian", hermitian}}},
                     {"q", q.Spec()},
                     {"k", k.Spec()},
                     {"v", v.Spec()},
                     {"re", Numbers(re)},
                     {"im", Numbers(im)}});
  }
}

void AddConvolutions(std::vector<Json>& cases) {
  const auto add = [&](const char* id, const PositionConvolutionSpec& spec) {
    int64_t tokens = 1;
    std::vector<int64_t> shape = {spec.channels, spec.channels / spec.groups};
    for (const int64_t n : spec.sizes) tokens *= n;
    shape.insert(shape.end(), spec.kernel.begin(), spec.kernel.end());
    const MadeTensor x = Make({2, spec.prefix_rows + tokens, spec.channels}, 1);
    const MadeTensor weight = Make(shape, 2), bias = Make({spec.channels}, 3);
    std::vector<float> out(x.values.size());
    PositionConvolution(spec, x.values, 2, weight.values, bias.values, out);
    cases.push_back({{"id", id},
                     {"method", "convolution"},
                     {"parameters",
                      {{"sizes", spec.sizes},
                       {"kernel", spec.kernel},
                       {"groups", spec.groups},
                       {"prefix_rows", spec.prefix_rows},
                       {"border", spec.border == ConvolutionBorder::kZero ? "zero" : "circular"},
                       {"gelu", spec.gelu},
                       {"residual", spec.residual},
                       {"weight", weight.json},
                       {"bias", bias.json}}},
                     {"x", x.json},
                     {"out", Numbers(out)}});
  };
  PositionConvolutionSpec wav2vec2{{9}, {4}, 6, 3};
  wav2vec2.gelu = true;
  add("convolutional.wav2vec2", wav2vec2);
  wav2vec2.border = ConvolutionBorder::kCircular;
  add("convolutional.circular", wav2vec2);
  PositionConvolutionSpec cpe{{3, 4}, {3, 3}, 2, 2, 1};
  add("convolutional.cpe", cpe);
  cpe = {{2, 3, 2}, {3, 3, 3}, 2, 2};
  cpe.residual = false;
  add("convolutional.video", cpe);

  const MadeTensor v = Make({6, 4}, 1), g = Make({4}, 2);
  std::vector<float> weight(v.values.size());
  MergeWeightNorm(v.values, g.values, weight);
  cases.push_back({{"id", "convolutional.weight-norm"},
                   {"method", "weight-norm"},
                   {"parameters", {{"v", v.json}, {"g", g.json}}},
                   {"out", Numbers(weight)}});
}

}  // namespace

void AddComputedCases(std::vector<Json>& cases) {
  AddRowsCases(cases);
  AddComplexLayers(cases);
  AddConvolutions(cases);
}

}  // namespace ropewalk::conformance
