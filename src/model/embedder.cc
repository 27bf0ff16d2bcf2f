#include "src/model/embedder.h"

#include <algorithm>
#include <numeric>

#include "ropewalk/absolute/combine.h"
#include "ropewalk/absolute/complex_order.h"
#include "ropewalk/absolute/convolutional.h"
#include "ropewalk/absolute/digits.h"
#include "ropewalk/absolute/floater.h"
#include "ropewalk/absolute/hierarchical.h"
#include "ropewalk/absolute/learned.h"
#include "ropewalk/absolute/recurrent.h"
#include "ropewalk/absolute/sinusoidal.h"
#include "ropewalk/base/error.h"

namespace ropewalk::internal {
namespace {

const std::string kPositions = "model.positions.";
const std::string kRecurrent = "model.recurrent_layer.";

using Shape = std::vector<int64_t>;
using Parameters = std::vector<std::pair<const char*, Shape>>;

// The parameters of each encoding, by the names of ropewalk.nn.
struct ParametersOf {
  const ModelConfig& c;
  Parameters operator()(const SinusoidalEmbedding&) const { return {}; }
  Parameters operator()(const HierarchicalEmbedding& e) const {
    return {{"table", {e.rows, c.hidden}}};
  }
  Parameters operator()(const MultiplicativeEmbedding& e) const {
    return {{"table", {e.rows, c.hidden}}};
  }
  Parameters operator()(const DigitsEmbedding& e) const {
    return {{"weight", {c.hidden, e.digits}}};
  }
  Parameters operator()(const RecurrentEmbedding& e) const {
    const int64_t width = Gates(e.cell) * c.hidden;
    return {{"start", {c.hidden}},
            {"weight", {width, c.hidden}},
            {"input_bias", {width}},
            {"hidden_bias", {width}}};
  }
  Parameters operator()(const FloaterEmbedding& e) const {
    return {{"start", {c.hidden}}, {"w", {e.hidden, c.hidden}}, {"u", {e.hidden}},
            {"b", {e.hidden}},     {"v", {c.hidden, e.hidden}}, {"c", {c.hidden}}};
  }
  Parameters operator()(const ConvolutionalEmbedding& e) const {
    return {{"v", {c.hidden, c.hidden / e.groups, e.kernel}}, {"bias", {c.hidden}}};
  }
  Parameters operator()(const ComplexOrderEmbedding& e) const {
    const auto shape = [&](ComplexSharing shared) {
      if (shared == ComplexSharing::kWords) return Shape{c.hidden / 2};
      if (shared == ComplexSharing::kDims) return Shape{c.vocab};
      return Shape{c.vocab, c.hidden / 2};
    };
    return {{"amplitude", shape(ComplexSharing::kNone)},
            {"frequency", shape(e.frequency_shared)},
            {"phase", shape(e.phase_shared)}};
  }
};

std::vector<int64_t> PositionsFrom(int64_t first, std::size_t tokens) {
  std::vector<int64_t> positions(tokens);
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

// y, [tokens, channels], of the inputs [kernel - 1 + tokens, channels], without the residual: the
// centred output k / 2 behind a token reads the kernel - 1 tokens in front of it and itself.
std::vector<float> ConvolveBehind(const PositionConvolutionSpec& spec, std::span<const float> input,
                                  std::span<const float> weight, std::span<const float> bias) {
  std::vector<float> all(input.size());
  PositionConvolution(spec, input, 1, weight, bias, all);
  const int64_t kernel = spec.kernel[0];
  const auto first = all.begin() + kernel / 2 * spec.channels;
  return {first, first + (spec.sizes[0] - (kernel - 1)) * spec.channels};
}

}  // namespace

bool KeepsConvolved(const std::optional<AbsoluteEncoding>& absolute) {
  return absolute && ReadsTokens(*absolute);
}

void AddEmbeddingTensors(const ModelConfig& c, std::vector<EncodingTensor>& all) {
  if (c.plan.learned) {
    all.push_back({kPositions + "table", -1, {c.plan.learned->positions, c.hidden}});
  }
  if (c.plan.absolute) {
    for (auto& [name, shape] : std::visit(ParametersOf{c}, *c.plan.absolute)) {
      all.push_back({kPositions + name, -1, std::move(shape)});
    }
  }
  if (!c.plan.recurrent_layer) return;
  const int64_t width = Gates(c.plan.recurrent_layer->cell) * c.hidden;
  for (const char* name : {"weight_ih", "weight_hh"}) {
    all.push_back({kRecurrent + name, -1, {width, c.hidden}});
  }
  for (const char* name : {"bias_ih", "bias_hh"}) all.push_back({kRecurrent + name, -1, {width}});
}

// What each encoding makes of x.
struct Embedder::Apply {
  const Embedder& e;
  std::span<const int32_t> ids;
  int64_t first;
  EmbeddingState* state;
  std::span<float> x;

  int64_t hidden() const { return e.c_.hidden; }
  std::vector<int64_t> positions() const { return PositionsFrom(first, ids.size()); }
  void Add(const Rows& rows) const { AddRows(x, 1, rows); }

  void Learned() const {
    Rows rows(x.size());
    if (e.longer_) {
      HierarchicalRows(*e.longer_, e.At("table"), positions(), rows);
    } else {
      LookUpRows(e.At("table"), hidden(), positions(), rows);
    }
    Add(rows);
  }
  void operator()(const SinusoidalEmbedding& s) const {
    SinusoidalSpec spec(s.layout);
    spec.dim = hidden();
    spec.base = s.base;
    spec.ladder = s.ladder;
    spec.cosine_first = s.cosine_first;
    Sinusoidal(spec).Add(x, 1, first, static_cast<float>(s.scale));
  }
  void operator()(const HierarchicalEmbedding& s) const {
    Rows rows(x.size());
    HierarchicalRows({s.rows, hidden(), s.alpha}, e.At("table"), positions(), rows);
    Add(rows);
  }
  void operator()(const MultiplicativeEmbedding&) const {
    Rows rows(x.size());
    LookUpRows(e.At("table"), hidden(), positions(), rows);
    MultiplyRows(x, 1, rows);
  }
  void operator()(const DigitsEmbedding& s) const {
    Rows rows(x.size());
    ProjectDigits({s.base, s.digits, s.factor}, e.At("weight"), hidden(), positions(), rows);
    Add(rows);
  }
  void operator()(const RecurrentEmbedding&) const { AddPath(); }
  void operator()(const FloaterEmbedding&) const { AddPath(); }
  void AddPath() const {
    const auto path = e.PathOf(first + static_cast<int64_t>(ids.size()));
    AddRows(x, 1, std::span(*path).subspan(first * hidden(), x.size()));
  }
  void operator()(const ConvolutionalEmbedding& s) const {
    PositionConvolutionSpec spec;
    spec.sizes = {static_cast<int64_t>(ids.size())};
    spec.kernel = {s.kernel};
    spec.channels = hidden();
    spec.groups = s.groups;
    spec.border = s.border;
    spec.gelu = s.gelu;
    spec.residual = false;
    Rows y(x.size());
    if (state == nullptr) {
      PositionConvolution(spec, x, 1, e.At("v"), e.At("bias"), y);
    } else {
      y = Behind(spec);
    }
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = s.residual ? x[i] + y[i] : y[i];
  }
  Rows Behind(PositionConvolutionSpec& spec) const {
    Rows& kept = state->convolved;
    const auto wanted = static_cast<std::size_t>((spec.kernel[0] - 1) * hidden());
    const std::size_t have = std::min(wanted, kept.size());
    Rows input(wanted - have);  // zeros in front of the text
    input.insert(input.end(), kept.end() - static_cast<std::ptrdiff_t>(have), kept.end());
    input.insert(input.end(), x.begin(), x.end());
    kept.insert(kept.end(), x.begin(), x.end());
    spec.sizes[0] += spec.kernel[0] - 1;
    return ConvolveBehind(spec, input, e.At("v"), e.At("bias"));
  }
  void operator()(const ComplexOrderEmbedding& s) const {
    const ComplexOrderSpec spec = {e.c_.vocab, hidden() / 2, s.frequency_shared, s.phase_shared};
    const std::size_t tokens = ids.size(), half = static_cast<std::size_t>(hidden() / 2);
    Rows re(tokens * half), im(tokens * half);
    const std::vector<int64_t> words(ids.begin(), ids.end());
    ComplexOrder(spec, {e.At("amplitude"), e.At("frequency"), e.At("phase")}, words, positions(),
                 {re, im});
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto from = static_cast<std::ptrdiff_t>(t * half),
                 n = static_cast<std::ptrdiff_t>(half);
      const auto to = std::copy_n(re.begin() + from, n, x.begin() + 2 * from);
      std::copy_n(im.begin() + from, n, to);
    }
  }
};

Embedder::Embedder(const ModelConfig& config, const TensorLoader& loader,
                   const std::optional<HierarchicalSpec>& longer)
    : c_(config), longer_(longer) {
  std::vector<EncodingTensor> tensors;
  AddEmbeddingTensors(config, tensors);
  for (const EncodingTensor& t : tensors) parameters_[t.name] = loader.ReadEncoding(t.name);
  if (longer_)
    HierarchicalRows(*longer_, At("table"), {}, {});  // refuses an alpha that loses positions
  if (!config.plan.recurrent_layer) return;
  const auto take = [&](const char* name) {
    return parameters_.extract(kRecurrent + name).mapped();
  };
  recurrent_ = std::make_unique<RecurrentLayerWeights>(
      config.plan.recurrent_layer->cell, config.hidden, take("weight_ih"), take("weight_hh"),
      take("bias_ih"), take("bias_hh"));
}

bool Embedder::replaces_tokens() const {
  return c_.plan.absolute && std::holds_alternative<ComplexOrderEmbedding>(*c_.plan.absolute);
}

std::span<const float> Embedder::At(const char* parameter) const {
  return parameters_.find(kPositions + parameter)->second;
}

Embedder::Rows Embedder::MakePath(int64_t rows) const {
  Rows out(static_cast<std::size_t>(rows * c_.hidden));
  if (const auto* cell = std::get_if<RecurrentEmbedding>(&*c_.plan.absolute)) {
    RecurrentRows(cell->cell, {At("start"), At("weight"), At("input_bias"), At("hidden_bias")},
                  out);
    return out;
  }
  const auto& floater = std::get<FloaterEmbedding>(*c_.plan.absolute);
  Rows values;
  for (const char* name : {"w", "u", "b", "v", "c"}) {
    values.insert(values.end(), At(name).begin(), At(name).end());
  }
  FloaterRows(TanhField(c_.hidden, floater.hidden, values), {floater.spacing, floater.substeps},
              At("start"), out);
  return out;
}

// Grows to the double at once. The rows follow from the first one, so those that exist keep their
// bits.
std::shared_ptr<const Embedder::Rows> Embedder::PathOf(int64_t rows) const {
  const std::lock_guard<std::mutex> lock(growing_);
  const int64_t have = path_ == nullptr ? 0 : static_cast<int64_t>(path_->size()) / c_.hidden;
  if (have >= rows) return path_;
  const int64_t wanted =
      std::min(std::max(rows, 2 * have), std::max(rows, PositionsOf(*c_.plan.absolute)));
  try {
    path_ = std::make_shared<const Rows>(MakePath(wanted));
  } catch (const Error&) {  // the rows beyond what is needed may leave the finite numbers
    path_ = std::make_shared<const Rows>(MakePath(rows));
  }
  return path_;
}

void Embedder::Run(std::span<const int32_t> ids, int64_t first_position, EmbeddingState* state,
                   std::span<float> x) const {
  const Apply apply = {*this, ids, first_position, state, x};
  if (c_.plan.learned) apply.Learned();
  if (c_.plan.absolute) std::visit(apply, *c_.plan.absolute);
  if (recurrent_ == nullptr) return;
  if (state == nullptr) return recurrent_->Run(nullptr, x);
  std::vector<float>& states = state->recurrent;
  recurrent_->Run(states.empty() ? nullptr : &*(states.end() - c_.hidden), x);
  states.insert(states.end(), x.begin(), x.end());
}

int64_t Embedder::bytes() const {
  std::size_t floats = 0;
  for (const auto& [name, values] : parameters_) floats += values.size();
  return static_cast<int64_t>(floats * sizeof(float)) +
         (recurrent_ == nullptr ? 0 : recurrent_->bytes());
}

}  // namespace ropewalk::internal
