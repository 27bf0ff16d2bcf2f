// Computes one cell: the row of a task.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>

#include "ropewalk/base/error.h"
#include "ropewalk/engines/settings.h"
#include "ropewalk/eval/results.h"
#include "src/plan/local_base.h"

namespace ropewalk {
namespace {

std::string PasskeyName(const SweepSpec& spec, const SweepInputs& inputs) {
  if (!spec.passkey || inputs.tokenizer == nullptr) return "none";
  std::ostringstream name;
  name << BuiltinPasskey().format << ": " << BuiltinPasskey().digits << " digits, depths";
  for (const double depth : spec.passkey_options.depths) name << ' ' << depth;
  name << ", " << spec.passkey_options.trials << " trials each, "
       << (spec.passkey_text_filler ? "filler from the text" : "built-in filler");
  return name.str();
}

bool WithPasskey(const SweepSpec& spec, const SweepInputs& inputs, int64_t length) {
  return spec.passkey && inputs.tokenizer != nullptr &&
         length >= MinPasskeyTokens(*inputs.tokenizer, spec.passkey_options.bos);
}

int64_t PasskeyTrials(const SweepSpec& spec) {
  return spec.passkey_options.trials * static_cast<int64_t>(spec.passkey_options.depths.size());
}

void DescribePlan(const SweepTask& task, Cell& cell) {
  const ResolvedPlan resolved = Resolve(task.plan, task.length);
  cell.plan_hash = resolved.hash;
  const std::vector<LayerPlan>& layers = task.plan.layers;
  const auto layer = std::find_if(layers.begin(), layers.end(), [&](const LayerPlan& l) {
    return l.rotation && !internal::HasLocalBase(task.plan, l);
  });
  if (layer == layers.end()) return;
  const auto index = static_cast<size_t>(layer - layers.begin());
  const ResolvedRotation& rotation =
      resolved.rotations[static_cast<size_t>(resolved.layers[index].rotation)];
  if (const auto local = LocalBase(task.plan)) cell.local_base = *local;
  for (const DoubleDouble& f : rotation.frequencies.inv_freq) cell.inv_freq.push_back(f.hi + f.lo);
  cell.amplitude = rotation.frequencies.amplitude;
  cell.rope_base = rotation.spec.base;
  cell.rotary_dim = rotation.spec.rotary_dim;
}

void AddPerplexity(PerplexityResult&& result, Cell& cell) {
  cell.mean_nll = result.mean_nll;
  cell.standard_error = result.standard_error;
  cell.perplexity = result.perplexity;
  cell.bits_per_byte = result.bits_per_byte;
  cell.windows = result.windows;
  cell.scored_tokens = static_cast<int64_t>(result.tokens.size());
  cell.window_nll = std::move(result.window_nll);
  cell.bucket_edges = std::move(result.bucket_edges);
  cell.bucket_nll = std::move(result.bucket_nll);
  cell.entropy = result.entropy;
  cell.entropy_share = result.entropy_share;
}

void AddPasskey(const PasskeyResult& result, const PasskeyOptions& options, Cell& cell) {
  cell.has_passkey = true;
  cell.passkey_accuracy = result.accuracy;
  cell.passkey_depths = options.depths;
  cell.passkey_trials = static_cast<int64_t>(result.trials.size());
  const size_t per_depth = static_cast<size_t>(options.trials);
  for (size_t d = 0; d < options.depths.size(); ++d) {
    int hits = 0;
    for (size_t i = 0; i < per_depth; ++i) hits += result.trials[d * per_depth + i].exact ? 1 : 0;
    cell.passkey_by_depth.push_back(hits / static_cast<double>(per_depth));
  }
}

}  // namespace

double ForwardFlops(const EngineFacts& engine, const PositionPlan& plan, double tokens) {
  double flops = tokens * engine.token_flops;
  for (const LayerPlan& layer : plan.layers) {
    double seen = tokens / 2;  // keys a query sees, on average
    if (layer.window_tokens > 0) seen = std::min(seen, static_cast<double>(layer.window_tokens));
    if (const auto* sinks = layer.map ? std::get_if<AttentionSinks>(&*layer.map) : nullptr) {
      seen = std::min(seen, static_cast<double>(sinks->sinks + sinks->window));
    }
    flops += tokens * engine.pair_flops * seen;
  }
  return flops;
}

Cell CommonFields(const SweepSpec& spec, const SweepInputs& inputs, int64_t longest_length) {
  const EngineFacts engine = inputs.engine->Facts();
  Cell cell;
  cell.version = Version();
  cell.model_hash = inputs.model_hash;
  if (inputs.text != nullptr) {
    cell.text_hash = inputs.text->hash;
    cell.tokenizer = inputs.text->tokenizer;
    cell.tokenizer_hash = inputs.text->tokenizer_hash;
  }
  cell.protocol = spec.perplexity ? spec.protocol.Name() : "none";
  cell.anchors = spec.protocol.anchors;
  cell.bos = spec.protocol.bos && spec.bos_id
                 ? "id " + std::to_string(*spec.bos_id) + " first in every window"
                 : "none";
  cell.passkey_protocol = PasskeyName(spec, inputs);
  cell.compute = engine.compute;
  cell.angles = spec.angles == AnglePrecision::kExact ? "exact" : "float32";
  if (!engine.angles.empty()) cell.angles = engine.angles;
  cell.trained_length = spec.trained_length;
  cell.longest_length = longest_length;
  cell.threads = engine.threads;
  cell.seed = spec.protocol.seed;
  return cell;
}

Cell RunCell(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
             const Cell& common, const ProgressFn& progress, std::vector<ScoredToken>* tokens) {
  const auto begin = std::chrono::steady_clock::now();
  Cell cell = common;
  cell.method = task.method;
  cell.factor = task.factor;
  cell.length = task.length;
  cell.scaling = task.scaling;
  DescribePlan(task, cell);

  const int64_t all_tokens = CostOf(task, spec, inputs, common.longest_length).tokens;
  int64_t before = 0;
  RunOptions options;
  options.angles = spec.angles;
  options.bos_id = spec.bos_id;
  options.entropy = true;
  options.by_position =
      spec.protocol.kind == Protocol::Kind::kWindows || task.length == common.longest_length;
  if (progress) {
    options.progress = [&](int64_t done, int64_t) { return progress(before + done, all_tokens); };
  }
  if (spec.perplexity) {
    PerplexityResult result =
        MeasurePerplexity(*inputs.engine, task.plan, *inputs.text, spec.protocol, task.length,
                          common.longest_length, options);
    before = result.windows * (task.length - 1);
    if (tokens != nullptr) *tokens = result.tokens;
    AddPerplexity(std::move(result), cell);
  }
  if (WithPasskey(spec, inputs, task.length)) {
    std::span<const int32_t> filler;  // empty: the template's own
    if (spec.passkey_text_filler) {
      if (inputs.text == nullptr) {
        throw Error(ErrorCode::kInvalidArgument, "passkey filler from the text needs a text");
      }
      filler = inputs.text->ids;
    }
    AddPasskey(MeasurePasskey(*inputs.engine, task.plan, *inputs.tokenizer, filler, task.length,
                              spec.passkey_options, options),
               spec.passkey_options, cell);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  cell.seconds = seconds.count();
  return cell;
}

CellCost CostOf(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
                int64_t longest_length) {
  const EngineFacts engine = inputs.engine->Facts();
  CellCost cost;
  const auto add = [&](int64_t count, int64_t fed, int64_t head_rows) {
    cost.tokens += count * fed;
    cost.flops +=
        static_cast<double>(count) * (ForwardFlops(engine, task.plan, static_cast<double>(fed)) +
                                      static_cast<double>(head_rows) * engine.head_flops);
  };
  if (spec.perplexity) {
    const bool all = task.length == longest_length;
    for (const EvalWindow& window :
         MakeWindows(*inputs.text, spec.protocol, task.length, longest_length, spec.bos_id)) {
      const auto ids = static_cast<int64_t>(window.ids.size());
      add(1, ids - 1, ids - (all ? 1 : window.score_begin));
    }
  }
  if (WithPasskey(spec, inputs, task.length)) add(PasskeyTrials(spec), task.length - 1, 0);
  return cost;
}

}  // namespace ropewalk
