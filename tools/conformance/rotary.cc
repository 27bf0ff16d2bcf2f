// The cases of the document "rotary".
#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/frequencies.h"
#include "tools/conformance/conformance.h"

namespace ropewalk::conformance {
namespace {

constexpr int64_t kHeadDim = 16, kTrained = 4096, kLength = 16384;
constexpr Dialect kDialects[] = {Dialect::kNative,  Dialect::kPaper,    Dialect::kHuggingFace,
                                 Dialect::kVllm,    Dialect::kLlamaCpp, Dialect::kMegatron,
                                 Dialect::kYarnRepo};
const std::vector<int64_t> kPositions = {0,    1,    255,   256,    257,     4095,
                                         4096, 4097, 16384, 131071, 1048575, 2147483646};

RotarySpec Spec(Scaling scaling) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = kHeadDim;
  spec.trained_length = kTrained;
  spec.scaling = std::move(scaling);
  return spec;
}

// Distinct values of both signs, exact in float16: element j of every case's input.
float Input(int64_t j) { return static_cast<float>((j * 7 + 3) % 16 - 8) / 8 + 0.0625f; }

struct Case {
  std::string id;
  RotarySpec spec;
  int64_t length = kLength;
};

std::vector<Case> ScalingCases() {
  const double s = 4;
  LongRopeScaling longrope;
  for (int i = 0; i < kHeadDim / 2; ++i) {
    longrope.short_factor.push_back(1 + 0.05 * i);
    longrope.long_factor.push_back(1 + 0.75 * i);
  }
  longrope.factor = s;
  YarnScaling open{s}, deepseek{40}, swapped{s}, given{s};
  open.truncate = false;
  deepseek.mscale = 0.707;
  deepseek.mscale_all_dim = 0.5;
  deepseek.softmax_mscale = true;
  swapped.beta_fast = 1;
  swapped.beta_slow = 32;
  given.attention_factor = 1.25;
  std::vector<std::pair<const char*, Scaling>> all = {
      {"none", NoScaling{}},
      {"linear", LinearScaling{s}},
      {"ntk", NtkScaling{s}},
      {"ntk-fixed", NtkFixedScaling{s}},
      {"ntk-mixed", NtkMixedScaling{s}},
      {"dynamic", DynamicNtkScaling{2}},
      {"dynamic-linear", DynamicLinearScaling{2}},
      {"qwen", QwenNtkScaling{}},
      {"by-parts", ByPartsScaling{s}},
      {"by-parts-repo", ByPartsRepoScaling{s}},
      {"yarn", YarnScaling{s}},
      {"yarn-untruncated", open},
      {"yarn-deepseek", deepseek},
      {"yarn-swapped-betas", swapped},
      {"yarn-attention-factor", given},
      {"dynamic-yarn", DynamicYarnScaling{}},
      {"llama3", Llama3Scaling{8}},
      {"longrope", longrope},
      {"proportional", ProportionalScaling{0.5}},
      {"hope", HopeScaling{}},
      {"base", BaseScaling{500000}},
      {"explicit", ExplicitScaling{{1, 1, 1.25, 1.5, 2, 3, 8, 8}}},
  };
  for (const MethodInfo& method : ScalingMethods()) {
    const auto named = [&](const auto& row) { return std::string_view(row.first) == method.name; };
    if (std::none_of(all.begin(), all.end(), named)) all.emplace_back(method.name, method.make(s));
  }
  std::vector<Case> cases;
  for (const auto& [name, scaling] : all) {
    for (const Dialect dialect : kDialects) {
      Case c{std::string(name) + "." + Name(dialect), Spec(scaling), kLength};
      c.spec.dialect = dialect;
      cases.push_back(c);
      if (IsLengthDependent(scaling)) {
        c.id += ".short";
        c.length = kTrained;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

std::vector<Case> ShapeCases() {
  std::vector<Case> cases;
  const auto add = [&](const char* id, auto change) {
    Case c{id, Spec(NoScaling{}), kLength};
    change(c.spec);
    cases.push_back(c);
  };
  add("interleaved", [](RotarySpec& s) { s.layout = PairLayout::kInterleaved; });
  add("partial", [](RotarySpec& s) { s.rotary_dim = 8; });
  add("partial-interleaved-offset", [](RotarySpec& s) {
    s.layout = PairLayout::kInterleaved;
    s.rotary_dim = 8;
    s.first_dim = 6;
  });
  add("xpos", [](RotarySpec& s) { s.xpos = XposDecay{}; });
  add("axes-chunked", [](RotarySpec& s) { s.axes.sections = {4, 2, 2}; });
  add("axes-interleaved", [](RotarySpec& s) {
    s.axes.sections = {4, 2, 2};
    s.axes.order = AxisOrder::kInterleaved;
  });
  add("axes-interleaved.llamacpp", [](RotarySpec& s) {
    s.axes.sections = {3, 2, 3};
    s.axes.order = AxisOrder::kInterleaved;
    s.dialect = Dialect::kLlamaCpp;
  });
  add("axes-ernie", [](RotarySpec& s) {
    s.axes.sections = {4, 2, 2};
    s.axes.order = AxisOrder::kErnie;
  });
  add("axes-four", [](RotarySpec& s) { s.axes.sections = {2, 2, 2, 2}; });
  add("axes-2d", [](RotarySpec& s) {
    s.axes.sections = {4, 4};
    s.axes.own_ladders = true;
  });
  add("axes-3d", [](RotarySpec& s) {
    s.axes.sections = {2, 3, 3};
    s.axes.own_ladders = true;
    s.axes.scalings = {{1000, NoScaling{}, 0}, {10000, LinearScaling{2}, 0}, {10000, {}, 0}};
  });
  return cases;
}

Json ScalingJson(const Scaling& scaling) {
  Json j = {{"method", InfoOf(scaling).name}};
  std::visit([&](const auto& s) { j.update(ParametersOf(s)); }, scaling);
  return j;
}

// Positions of a token on every axis, apart from one another.
std::vector<int64_t> OnAxes(int64_t position, int axes) {
  std::vector<int64_t> p;
  p.reserve(static_cast<std::size_t>(axes));
  for (int a = 0; a < axes; ++a) p.push_back(a == 0 ? position : position / (2 * a) + a);
  return p;
}

Json SpecJson(const RotarySpec& spec, int64_t length) {
  Json j = {{"head_dim", spec.head_dim},
            {"rotary_dim", spec.rotary_dim},
            {"first_dim", spec.first_dim},
            {"layout", spec.layout == PairLayout::kHalf ? "half" : "interleaved"},
            {"base", spec.base},
            {"trained_length", spec.trained_length},
            {"length", length},
            {"scaling", ScalingJson(spec.scaling)},
            {"dialect", Name(spec.dialect)}};
  if (spec.xpos) j["xpos"] = {{"scale_base", spec.xpos->scale_base}, {"gamma", spec.xpos->gamma}};
  if (!spec.axes.sections.empty()) {
    constexpr const char* kOrders[] = {"chunked", "interleaved", "ernie"};
    j["sections"] = spec.axes.sections;
    j["order"] = kOrders[static_cast<std::size_t>(spec.axes.order)];
    j["own_ladders"] = spec.axes.own_ladders;
    for (const AxisScaling& a : spec.axes.scalings) {
      j["ladders"].push_back({{"base", a.base}, {"scaling", ScalingJson(a.scaling)}});
    }
  }
  return j;
}

// The input rotated in double by exact angles: the truth that float32 rounds.
Json Rotated(const Case& c, const Frequencies& f, const std::vector<double>& angles,
             const std::vector<int64_t>& position) {
  std::vector<double> x;
  for (int64_t j = 0; j < c.spec.head_dim; ++j) x.push_back(Input(j));
  const auto pairs = static_cast<int64_t>(angles.size());
  for (int64_t i = 0; i < pairs; ++i) {
    double amplitude = f.amplitude;
    if (!f.log_decay.empty()) {
      amplitude *= std::exp(f.log_decay[static_cast<std::size_t>(i)] *
                            (static_cast<double>(position[0]) - f.decay_centre));
    }
    const bool half = c.spec.layout == PairLayout::kHalf;
    double& a = x[static_cast<std::size_t>(c.spec.first_dim + (half ? i : 2 * i))];
    double& b = x[static_cast<std::size_t>(c.spec.first_dim + (half ? i + pairs : 2 * i + 1))];
    const double angle = angles[static_cast<std::size_t>(i)];
    const double y = amplitude * (a * std::cos(angle) - b * std::sin(angle));
    b = amplitude * (a * std::sin(angle) + b * std::cos(angle));
    a = y;
  }
  return x;
}

Json CaseJson(const Case& c) {
  Json out = {{"id", c.id}, {"spec", SpecJson(c.spec, c.length)}};
  Frequencies f;
  try {
    f = Resolve(c.spec, c.length);
  } catch (const Error& e) {
    out["refused"] = e.what();
    return out;
  }
  for (const DoubleDouble& x : f.inv_freq) out["inv_freq"].push_back(x.hi);
  for (const float x : f.inv_freq_f32) out["inv_freq_float32"].push_back(double(x));
  out["amplitude"] = f.amplitude;
  out["softmax_multiplier"] = f.softmax_multiplier;
  if (!f.axis.empty()) out["axis"] = f.axis;
  if (!f.log_decay.empty()) out["log_decay"] = f.log_decay;
  for (const int64_t p : kPositions) {
    if (!f.log_decay.empty() && p > kLength) continue;  // decayed to nothing
    const std::vector<int64_t> position = OnAxes(p, f.axes);
    std::vector<double> angles;
    for (std::size_t i = 0; i < f.inv_freq.size(); ++i) {
      const std::size_t axis = f.axis.empty() ? 0 : f.axis[i];
      angles.push_back(ExactAngle(f.inv_freq[i], position[axis]));
    }
    Json at = {{"position", f.axes == 1 ? Json(p) : Json(position)}, {"angle", angles}};
    if (p == 1 || p == kTrained + 1 || p == 1048575) {
      at["query"] = Rotated(c, f, angles, position);
    }
    out["at"].push_back(at);
  }
  return out;
}

}  // namespace

Json RotaryInput() {
  Json input;
  for (int64_t j = 0; j < kHeadDim; ++j) input.push_back(Input(j));
  return input;
}

void AddRotaryCases(std::vector<Json>& cases) {
  for (const Case& c : ScalingCases()) cases.push_back(CaseJson(c));
  for (const Case& c : ShapeCases()) cases.push_back(CaseJson(c));
}

}  // namespace ropewalk::conformance
