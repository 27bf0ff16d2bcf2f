// How Hugging Face, vLLM and llama.cpp each compute a model's positions, where they differ, and
// warnings about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/engines/versions.h"
#include "ropewalk/plan/plan.h"

namespace ropewalk {

// One rotation as an engine computes it, compared with the documented formula (Dialect::kNative).
struct EngineView {
  Dialect engine = Dialect::kHuggingFace;
  bool expressible = false;    // whether the engine has the method
  std::string reason;          // why not: the message of Resolve
  double angle_rad = 0;        // largest |f_engine - f_native| * position over pairs, not reduced
  int64_t angle_pair = 0;      // the pair of it
  double frequency_ratio = 1;  // the f_engine / f_native furthest from 1
  int64_t ratio_pair = 0;      // the pair of it
  double amplitude = 1;        // attention factor: multiplies cos and sin
  double amplitude_ratio = 1;  // engine / native
  double softmax_ratio = 1;    // engine / native
  int64_t axis_pairs = 0;      // pairs with another position axis than native
  Frequencies frequencies = {};
  bool Same() const;  // equal to native up to rounding to float32 (2e-7, relative)
};
// The views of the chosen engines.
std::vector<EngineView> Narrow(std::vector<EngineView> views,
                               const std::vector<EngineChoice>& choices);

// Hugging Face, vLLM and llama.cpp, in this order. Angles are compared at `position`; `length` is
// that of Resolve.
std::vector<EngineView> CompareEngines(const RotarySpec& spec, int64_t length, int64_t position);

// A warning from one rule of the table in src/engines/rules.cc.
struct Finding {
  std::string id;      // "yarn-truncate": stable, listed by Rules()
  std::string engine;  // whose behaviour: "llama.cpp", "vLLM", "every engine", "the model"
  std::string text;    // what happens and why, one or two sentences
  // The size of the effect if `measured`: 12.9 "rad" at position 131071, or a ratio ("x").
  bool measured = false;
  double value = 0;
  std::string unit;      // "rad", "x", "pairs", "share", "tokens"
  int64_t position = 0;  // 0: everywhere
  int rotation = -1;     // index into ResolvedPlan::rotations, -1: the plan as a whole
  // The engines that it is about (empty: others, or all), and their versions, "since 5.0.0, before
  // 5.13.0" (empty: all).
  std::vector<EngineKind> kinds = {};
  VersionRange range = {};
  std::string versions = {};
};
struct RuleInfo {
  const char* id;
  const char* engine;
};
const std::vector<RuleInfo>& Rules();

// The findings of all rules that apply, in the table's order. `resolved` is that of `plan`.
std::vector<Finding> Warnings(const PositionPlan& plan, const ResolvedPlan& resolved);
// Without the findings about engines or versions other than the chosen ones.
std::vector<Finding> Narrow(std::vector<Finding> findings,
                            const std::vector<EngineChoice>& choices);

// The error of angles in float32 arithmetic at one position: the largest |difference| over pairs
// from the exact angle, in radians, and its pair.
struct AngleError {
  double radians = 0;
  int64_t pair = 0;
};
struct Float32Error {
  int64_t position = 0;
  AngleError hugging_face;  // float32(position) * inv_freq_f32, with PyTorch's inv_freq bit for bit
  AngleError rounded_once;  // the same with each exact frequency rounded once to float32
  // ggml, in float32: theta_i = position * base^(-2i/d), then divided by rope_freqs or blended by
  // YaRN. The CPU kernel multiplies by base^(-2/d) from pair to pair, the CUDA kernel computes
  // powf(base^(-2/d), i) (here correctly rounded). Absent for methods and axes that ggml lacks.
  std::optional<AngleError> ggml_cpu, ggml_cuda;
};
Float32Error Float32AngleError(const RotarySpec& spec, const Frequencies& frequencies,
                               int64_t position);

}  // namespace ropewalk
