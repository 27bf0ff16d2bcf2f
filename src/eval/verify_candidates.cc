#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/verify.h"
#include "src/plan/local_base.h"

namespace ropewalk {
namespace {

constexpr double kDefaultBase = 10000;  // of configurations that name none

template <class Edit>
PositionPlan EditLayers(PositionPlan plan, Edit&& edit) {
  for (LayerPlan& layer : plan.layers) edit(layer);
  return plan;
}

// Rotations with a base of their own, which no scaling touches, stay.
template <class Edit>
PositionPlan EditRotations(const PositionPlan& plan, Edit&& edit) {
  return EditLayers(plan, [&](LayerPlan& layer) {
    if (layer.rotation && !internal::HasLocalBase(plan, layer)) edit(*layer.rotation);
  });
}

// Of the scalings that are an S.
template <class S, class Edit>
PositionPlan EditScaling(const PositionPlan& plan, Edit&& edit) {
  return EditRotations(plan, [&](RotarySpec& spec) {
    if (S* scaling = std::get_if<S>(&spec.scaling)) edit(*scaling);
  });
}

const RotarySpec* ScaledRotation(const PositionPlan& plan) {
  for (const LayerPlan& layer : plan.layers) {
    if (layer.rotation && !internal::HasLocalBase(plan, layer)) return &*layer.rotation;
  }
  return nullptr;
}

PositionPlan Unscaled(const PositionPlan& model_plan) {
  return EditRotations(model_plan,
                       [](RotarySpec& spec) { spec.scaling = TrainedScaling(spec.scaling); });
}

class Candidates {
 public:
  explicit Candidates(const VerifySetup& setup) : setup_(setup) {}

  std::vector<VerifyCandidate> Take() && { return std::move(made_); }

  // A plan that does not resolve is one that no engine runs either.
  void Add(std::string name, std::string sentence, PositionPlan plan, int64_t final_length = 0) {
    const int64_t length = final_length > 0 ? final_length : setup_.length;
    std::string hash;
    try {
      hash = Resolve(plan, length).hash;
    } catch (const Error&) {
      if (made_.empty()) throw;
      return;
    }
    if (!hashes_.insert(hash).second) return;
    made_.push_back({.name = std::move(name),
                     .sentence = std::move(sentence),
                     .plan = std::move(plan),
                     .final_length = final_length,
                     .plan_hash = std::move(hash)});
  }

  void AddTruncated(const char* name, const char* how, const PositionPlan& plan) {
    const int64_t kept = setup_.asked.trained_length;
    made_.push_back(
        {.name = name,
         .sentence = fmt::format("sees only the last {} tokens of a prompt, {}", kept, how),
         .plan = plan,
         .last_tokens = kept,
         .plan_hash = Resolve(plan, setup_.length).hash});
  }

 private:
  const VerifySetup& setup_;
  std::vector<VerifyCandidate> made_;
  std::set<std::string> hashes_;
};

void AddYarnMistakes(const PositionPlan& asked, const YarnScaling& yarn, double factor,
                     Candidates& out) {
  out.Add("no-attention-factor", "ignores the attention factor",
          EditScaling<YarnScaling>(asked, [](YarnScaling& s) {
            s.mscale = s.mscale_all_dim = s.attn_factor = std::nullopt;
            s.attention_factor = 1;
          }));
  out.Add("default-attention-factor",
          "ignores the attention factor that is set and uses 0.1 ln factor + 1",
          EditScaling<YarnScaling>(asked, [](YarnScaling& s) {
            s.mscale = s.mscale_all_dim = s.attn_factor = s.attention_factor = std::nullopt;
          }));
  out.Add(yarn.truncate ? "unrounded-ramp" : "rounded-ramp",
          yarn.truncate ? "does not round the ends of YaRN's ramp"
                        : "rounds the ends of YaRN's ramp to whole pairs",
          EditScaling<YarnScaling>(asked, [](YarnScaling& s) { s.truncate = !s.truncate; }));
  out.Add("default-betas", "ignores beta_fast and beta_slow and uses 32 and 1",
          EditScaling<YarnScaling>(asked, [](YarnScaling& s) {
            s.beta_fast = YarnScaling().beta_fast;
            s.beta_slow = YarnScaling().beta_slow;
          }));
  out.Add("ramp-at-extended-length", "takes the extended length for the trained one in YaRN's ramp",
          EditRotations(asked, [&](RotarySpec& spec) {
            spec.trained_length =
                static_cast<int64_t>(static_cast<double>(spec.trained_length) * factor);
          }));
}

void AddLongRopeMistakes(const PositionPlan& asked, Candidates& out) {
  out.Add("no-attention-factor", "ignores the attention factor",
          EditScaling<LongRopeScaling>(asked, [](LongRopeScaling& s) {
            s.short_mscale = s.long_mscale = std::nullopt;
            s.attention_factor = 1;
          }));
  out.Add("short-factors", "runs LongRoPE's short_factor at every length",
          EditScaling<LongRopeScaling>(asked, [](LongRopeScaling& s) {
            s.long_factor = s.short_factor;
            s.long_mscale = s.short_mscale;
          }));
}

void AddOtherFactors(const VerifySetup& setup, double factor, Candidates& out) {
  const auto trained = static_cast<double>(setup.asked.trained_length);
  std::vector<double> others = {factor / 2, factor * 2};
  for (const int64_t length : {setup.model_plan.stated_length, setup.served_length}) {
    if (trained > 0 && length > 0) others.push_back(static_cast<double>(length) / trained);
  }
  for (const double other : others) {
    if (other <= 1) continue;
    const auto set = [other](auto& scaling) {
      if constexpr (requires { scaling.factor = other; }) scaling.factor = other;
    };
    out.Add(fmt::format("factor-{:g}", other), fmt::format("runs factor {:g} instead", other),
            EditRotations(setup.asked, [&](RotarySpec& spec) { std::visit(set, spec.scaling); }));
  }
}

void AddOtherMethods(const VerifySetup& setup, double factor, Candidates& out) {
  for (const char* name : {"linear", "ntk", "dynamic", "yarn", "llama3"}) {
    const PositionMethod method = PositionMethod::Parse(name);
    out.Add(name, fmt::format("runs {} with factor {:g} instead", method.title(), factor),
            method.Apply(setup.model_plan, factor, setup.asked.trained_length));
  }
}

void AddBaseMistakes(const VerifySetup& setup, double base, Candidates& out) {
  if (base == kDefaultBase) return;
  const auto set = [](RotarySpec& spec) { spec.base = kDefaultBase; };
  const std::string ignores =
      fmt::format("ignores rope_theta, {:g}, and uses {:g}", base, kDefaultBase);
  out.Add("default-base", ignores, EditRotations(setup.asked, set));
  out.Add("default-base-unscaled", ignores + ", unscaled",
          EditRotations(Unscaled(setup.model_plan), set));
}

void AddDialects(const PositionPlan& asked, Candidates& out) {
  for (const auto& [dialect, engine] :
       {std::pair(Dialect::kHuggingFace, "transformers"), std::pair(Dialect::kVllm, "vLLM"),
        std::pair(Dialect::kLlamaCpp, "llama.cpp")}) {
    out.Add(fmt::format("as-{}", Name(dialect)), fmt::format("runs the formula of {}", engine),
            EditRotations(asked, [d = dialect](RotarySpec& spec) { spec.dialect = d; }));
  }
}

void AddServedLength(const VerifySetup& setup, Candidates& out) {
  if (setup.served_length <= setup.length) return;
  out.Add(
      "resolved-at-served-length",
      fmt::format("resolves frequencies at the {} tokens that it serves, not at a prompt's length",
                  setup.served_length),
      setup.asked, setup.served_length);
}

void AddWindows(const PositionPlan& asked, Candidates& out) {
  const bool windowed = std::any_of(asked.layers.begin(), asked.layers.end(),
                                    [](const LayerPlan& l) { return l.window_tokens > 0; });
  if (windowed) {
    out.Add("no-window", "ignores the sliding window",
            EditLayers(asked, [](LayerPlan& layer) { layer.window_tokens = 0; }));
  } else if (asked.trained_length > 0) {
    out.Add(
        "window",
        fmt::format("attends to the last {} tokens alone (a sliding window)", asked.trained_length),
        EditLayers(asked, [&](LayerPlan& layer) {
          if (!layer.recurrent) layer.window_tokens = asked.trained_length;
        }));
  }
}

}  // namespace

std::vector<VerifyCandidate> VerifyCandidates(const VerifySetup& setup) {
  Candidates out(setup);
  const PositionPlan& asked = setup.asked;
  const PositionPlan unscaled = Unscaled(setup.model_plan);
  out.Add("asked", "runs what you asked for: " + setup.asked_description, asked);
  out.Add("unscaled", "runs the model unscaled", unscaled);
  out.Add("as-shipped", "runs what the model's files say", setup.model_plan);
  out.Add("no-map", "ignores the distance map",
          EditLayers(asked, [](LayerPlan& layer) { layer.map.reset(); }));
  if (const RotarySpec* rotation = ScaledRotation(asked)) {
    const double factor = FactorOf(rotation->scaling);
    if (const auto* yarn = std::get_if<YarnScaling>(&rotation->scaling)) {
      AddYarnMistakes(asked, *yarn, factor, out);
    }
    if (std::holds_alternative<LongRopeScaling>(rotation->scaling)) AddLongRopeMistakes(asked, out);
    if (factor > 1) {
      AddOtherFactors(setup, factor, out);
      AddOtherMethods(setup, factor, out);
    }
    AddBaseMistakes(setup, rotation->base, out);
    AddDialects(asked, out);
    if (IsLengthDependent(rotation->scaling)) AddServedLength(setup, out);
  }
  AddWindows(asked, out);
  if (setup.truncation && asked.trained_length > 0) {
    out.AddTruncated("truncated", "unscaled", unscaled);
    out.AddTruncated("truncated-asked", "under the plan that you asked for", asked);
  }
  return std::move(out).Take();
}

}  // namespace ropewalk
