// The data of `ropewalk inspect`, computed once and printed as text, JSON or a page.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/options.h"
#include "ropewalk/analysis/analysis.h"
#include "ropewalk/engines/engines.h"
#include "ropewalk/eval/attention_profile.h"
#include "ropewalk/eval/frequency_use.h"
#include "ropewalk/model/model.h"

namespace ropewalk::cli {

struct InspectRotation {
  std::string layers;  // "layers 0-31", "layers 1, 3, 5, ... 23"
  ResolvedRotation rotation;
  int64_t reach = 0;                   // distances that its layers see: the length, or a window
  Frequencies trained = {};            // without the extension
  std::vector<PairInfo> pairs = {};    // [pairs]
  CriticalDimension critical = {};     // of the trained frequencies within the trained length
  int64_t longest_trained = 0;         // context that the trained frequencies support
  int64_t longest = 0;                 // that the frequencies in use support
  std::vector<BaseBound> bounds = {};  // for contexts up to the page's length, at most kMostBounds
  std::vector<Float32Error> float32 = {};
  std::vector<EngineView> engines = {};
};

// A bias on the scores.
struct InspectBias {
  std::string layers;
  LayerBias bias;
  std::vector<float> slopes = {};  // ALiBi: [heads], per token, including AlibiBias::scale
  // With slopes in bfloat16: the largest error of transformers' bias in a score of the last token.
  std::optional<double> bfloat16_error = {};

  double HalvesEvery(std::size_t head) const;  // tokens
  // The distance at which a key has 2^-24 (float32's last bit) of the weight at distance 0.
  double SightEnds(std::size_t head) const;
};

// One line of the decay chart.
struct InspectDecay {
  std::string method;  // "as shipped", "yarn"
  double factor = 1;
  std::vector<DecayPoint> points;
};

// Where attention looks at one length.
struct InspectAttention {
  std::string method;  // "as shipped", "hope"
  AttentionProfile profile;
};

struct InspectPage {
  std::string name;
  PositionPlan plan;
  ResolvedPlan resolved;
  int64_t trained_length = 0;  // tokens; 0: unknown
  int64_t length = 0;
  std::vector<InspectRotation> rotations;
  std::vector<InspectBias> biases;
  std::vector<InspectDecay> decay;    // of the first rotation
  std::vector<EngineChoice> choices;  // --engine: whose views and findings are shown
  std::vector<Finding> findings;
  bool whole_file = true;           // false: the file has keys that its family's code ignores
  std::optional<FrequencyUse> use;  // with --text or --ids
  std::vector<InspectAttention> attention = {};
  std::string attention_note = {};  // what of it was not measured as asked for, or empty
};

// --length, --trained, --rope-scaling, --dialect, --methods and --factors applied to the model's
// plan. `bounds`: also search the bounds of the base, which takes up to seconds.
InspectPage MakePage(const Options& options, const std::string& name, const PositionPlan& plan,
                     bool bounds = true);
inline constexpr int64_t kMostBounds = int64_t{1} << 18;  // contexts beyond take seconds

// inspect_attention.cc: runs the decoder over the beginning of --text or --ids.
void MeasureText(const Options& options, const ModelFiles& files, InspectPage& page);
std::string AttentionText(const InspectPage& page);
nlohmann::ordered_json AttentionJson(const InspectPage& page);

// inspect_text.cc
std::string PageText(const InspectPage& page);
// inspect_bias.cc
InspectBias BiasOf(const InspectPage& page, std::size_t index);
std::string BiasText(const InspectPage& page, const InspectBias& bias);
nlohmann::ordered_json BiasJson(const InspectPage& page, std::size_t index);
// inspect_json.cc: the object that docs/inspect-format.md describes.
nlohmann::ordered_json PageJson(const InspectPage& page);
// inspect_html.cc: `model` is what --json prints.
std::string PageHtml(const InspectPage& page, const nlohmann::ordered_json& model);
// inspect_diff.cc: differences between the positions of two models.
nlohmann::ordered_json DiffJson(const InspectPage& a, const InspectPage& b);
std::string DiffText(const nlohmann::ordered_json& diff);

}  // namespace ropewalk::cli
