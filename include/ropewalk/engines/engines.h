// What Hugging Face, vLLM and llama.cpp would each do with a model's positions, where they differ,
// and what a reader should be warned of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/engines/versions.h"
#include "ropewalk/plan/plan.h"

namespace ropewalk {

// One rotation as one engine computes it, beside what the file means (Dialect::kNative).
struct EngineView {
  Dialect engine = Dialect::kHuggingFace;
  bool expressible = false;
  std::string reason;          // why not, in the words of Resolve
  double angle_rad = 0;        // largest |f_engine - f_native| * position over pairs, not reduced
  int64_t angle_pair = 0;      // where
  double frequency_ratio = 1;  // f_engine / f_native where that is furthest from 1
  int64_t ratio_pair = 0;      // where
  double amplitude = 1;        // on cos and sin
  double amplitude_ratio = 1;  // engine / native
  double softmax_ratio = 1;    // engine / native
  int64_t axis_pairs = 0;      // pairs that another axis turns
  Frequencies frequencies = {};
  bool Same() const;  // as native, but for rounding to float32 (2e-7, relative)
};
// Those of the chosen engines.
std::vector<EngineView> Narrow(std::vector<EngineView> views,
                               const std::vector<EngineChoice>& choices);

// hf, vllm, llamacpp. `position` is where angles are compared, `length` what Resolve gets.
std::vector<EngineView> CompareEngines(const RotarySpec& spec, int64_t length, int64_t position);

// Something a reader should know, found by one rule of the table in src/engines/rules.cc.
struct Finding {
  std::string id;      // "yarn-truncate": stable, listed by Rules()
  std::string trap;    // its number in the list of traps, "T1"; empty where it has none
  std::string engine;  // whose behaviour: "llama.cpp", "vLLM", "every engine", "the model"
  std::string text;    // what happens and why, one or two sentences
  // How much, where it can be said: 12.9 "rad" at position 131071, or a ratio ("x").
  bool measured = false;
  double value = 0;
  std::string unit;      // "rad", "x", "pairs", "share", "tokens"
  int64_t position = 0;  // 0: everywhere
  int rotation = -1;     // index into ResolvedPlan::rotations, -1: the plan as a whole
  // What it is about, where that is one or two of the engines that have a kind; and of which
  // versions, "since 5.0.0, before 5.13.0" (empty: all).
  std::vector<EngineKind> kinds = {};
  VersionRange range = {};
  std::string versions = {};
};
struct RuleInfo {
  const char* id;
  const char* trap;
  const char* engine;
};
const std::vector<RuleInfo>& Rules();

// Every rule that applies, in the table's order. `plan` must be what `resolved` came from.
std::vector<Finding> Warnings(const PositionPlan& plan, const ResolvedPlan& resolved);
// Without those that are about other engines, or other versions, than the chosen ones.
std::vector<Finding> Narrow(std::vector<Finding> findings,
                            const std::vector<EngineChoice>& choices);

// How far float32 arithmetic is from the exact angle at one position: the largest |difference| over
// pairs, radians, and the pair.
struct AngleError {
  double radians = 0;
  int64_t pair = 0;
};
struct Float32Error {
  int64_t position = 0;
  AngleError
      hugging_face;  // float32(position) * inv_freq_f32, rounded: inv_freq bit for bit PyTorch's
  AngleError rounded_once;  // the same with each exact frequency rounded once
  // ggml: theta = position times base^(-2/d), all in float32, then divided by rope_freqs or blended
  // by YaRN. The CPU kernel multiplies pair after pair, the CUDA kernel takes powf(base^(-2/d),
  // pair) (here correctly rounded). Absent for methods and axes that ggml has no formula for.
  std::optional<AngleError> ggml_cpu, ggml_cuda;
};
Float32Error Float32AngleError(const RotarySpec& spec, const Frequencies& frequencies,
                               int64_t position);

}  // namespace ropewalk
