#include "ropewalk/plan/method.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "ropewalk/base/did_you_mean.h"
#include "ropewalk/base/error.h"
#include "ropewalk/relative/distance_bias.h"
#include "src/plan/local_base.h"

namespace ropewalk {
namespace {

// Encodings of the library that are no methods, beside those of DistanceBiases(): a model learns
// with one from the start. tests/cli holds the list against the pages of docs/.
constexpr const char* kTrainedEncodings[] = {
    "complex-order", "convolutional",   "cope",    "deberta",        "digits", "fire", "floater",
    "fope",          "forgetting-gate", "learned", "multiplicative", "nope",   "pope", "recurrent",
    "shaw",          "sinusoidal",      "swin",    "transformer-xl", "tupe",   "xpos"};

constexpr const char* kMscale = "mscale";

[[noreturn]] void Refuse(ErrorCode code, const std::string& message) { throw Error(code, message); }

// Whether the method's scaling has a factor of its own.
bool HasFactor(const MethodInfo& scaling) { return scaling.make(2) != scaling.make(3); }

const MethodPart* FindPart(const std::string& name) {
  for (const MethodPart& part : MethodParts()) {
    if (name == part.name) return &part;
  }
  return nullptr;
}

const MethodInfo* FindScaling(const std::string& name) {
  for (const MethodInfo& method : Methods()) {
    if (name == method.name) return &method;
  }
  return nullptr;
}

[[noreturn]] void RefuseName(const std::string& name) {
  std::vector<std::string_view> names;
  for (const MethodInfo& method : Methods()) names.emplace_back(method.name);
  for (const MethodPart& part : MethodParts()) names.emplace_back(part.name);
  std::string plain = name;  // "Transformer_XL"
  for (char& c : plain) c = c == '_' ? '-' : static_cast<char>(std::tolower(c & 0x7f));
  const auto& biases = DistanceBiases();
  const bool trained =
      std::find(std::begin(kTrainedEncodings), std::end(kTrainedEncodings), plain) !=
          std::end(kTrainedEncodings) ||
      std::any_of(biases.begin(), biases.end(), [&](const auto& b) { return plain == b.name; });
  Refuse(ErrorCode::kInvalidArgument,
         fmt::format("method: got \"{}\"{}; expected one of {}; or several joined by +", name,
                     trained ? ", which is trained with the model: it cannot be swapped into one "
                               "that was trained with another"
                             : DidYouMean(name, names),
                     fmt::join(names, ", ")));
}

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> pieces{""};
  for (const char c : text) {
    if (c == at) {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  return pieces;
}

// "window=512,group=8", "512": values by key.
template <class Number>
std::map<std::string, Number> ReadSettings(const std::string& part, const std::string& text,
                                           const std::vector<const char*>& keys) {
  std::map<std::string, Number> settings;
  const std::vector<std::string> pieces = Split(text, ',');
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::size_t equals = pieces[i].find('=');
    const bool named = equals != std::string::npos;
    const std::string key = named ? pieces[i].substr(0, equals) : i == 0 ? keys[0] : "";
    const std::string digits = named ? pieces[i].substr(equals + 1) : pieces[i];
    const bool known = std::find(keys.begin(), keys.end(), key) != keys.end();
    Number value{};
    const char* end = digits.data() + digits.size();
    const auto [p, error] = std::from_chars(digits.data(), end, value);
    if (!known || error != std::errc() || p != end || digits.empty() ||
        !settings.emplace(key, value).second) {
      Refuse(ErrorCode::kInvalidArgument,
             fmt::format("method {}: expected {}=NUMBER, each once, got \"{}\"", part,
                         fmt::join(keys, "=NUMBER or "), pieces[i]));
    }
  }
  return settings;
}

bool KnowsAll(const LayerPlan& layer, int64_t known) {
  const auto within = [&](int64_t tokens) { return tokens > 0 && tokens <= known; };
  return within(layer.window_tokens) || within(layer.chunk_tokens);
}

void SetMap(const DistanceMap& map, int64_t known, PositionPlan& plan) {
  bool used = false;
  for (LayerPlan& layer : plan.layers) {
    if (!layer.rotation || KnowsAll(layer, known)) continue;
    CheckComposition(map, *layer.rotation, layer.window_tokens);
    layer.map = map;
    used = true;
  }
  if (used) return;
  Refuse(ErrorCode::kUnsupported,
         fmt::format("{}: expected a layer that rotates and sees farther than the {} tokens that "
                     "it was trained at, and this model has none",
                     Describe(map), known));
}

void SetTemperature(const QueryTemperature& temperature, PositionPlan& plan) {
  const bool rotates =
      std::any_of(plan.layers.begin(), plan.layers.end(),
                  [](const LayerPlan& layer) { return layer.rotation.has_value(); });
  if (temperature.kind == QueryTemperature::Kind::kMscale && !rotates) {
    Refuse(ErrorCode::kUnsupported,
           "mscale multiplies cos and sin: expected a layer that rotates, and this model has none");
  }
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    LayerPlan& layer = plan.layers[l];
    const bool mscale = temperature.kind == QueryTemperature::Kind::kMscale;
    if (layer.recurrent || (mscale && !layer.rotation)) continue;
    if (KnowsAll(layer, mscale ? plan.trained_length : temperature.period)) continue;
    if (mscale && layer.rotation->rotary_dim != layer.rotation->head_dim) {
      Refuse(
          ErrorCode::kUnsupported,
          fmt::format("mscale: layer {} rotates {} of {} elements of a head, and to multiply cos "
                      "and sin would leave the others; expected a model that rotates all",
                      l, layer.rotation->rotary_dim, layer.rotation->head_dim));
    }
    if (layer.temperature && (layer.temperature->kind != temperature.kind ||
                              layer.temperature->period != temperature.period)) {
      Refuse(ErrorCode::kUnsupported,
             fmt::format("{}: layer {} of this model has a temperature of its own, which was "
                         "trained; two would multiply",
                         mscale ? kMscale : "log-n", l));
    }
    layer.temperature = temperature;
  }
}

// The scaling for the layers that WithScaling leaves alone.
void ScaleLocalLayers(const PositionPlan& trained, const std::string& method,
                      const Scaling& scaling, PositionPlan& plan) {
  bool used = false;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (!internal::HasLocalBase(trained, trained.layers[l])) continue;
    plan.layers[l].rotation->scaling = scaling;
    used = true;
  }
  if (used) return;
  Refuse(ErrorCode::kUnsupported,
         fmt::format("method {}: no sliding-window layer of this model has a base of its own, so "
                     "that every layer is scaled without {}; leave it out",
                     method, kAllLayers));
}

// Some models are trained with a share of the pairs at frequency 0 (Gemma 4), which formulas over all
// pairs would set going: only to divide all frequencies by one number keeps it.
void KeepProportional(const PositionPlan& trained, const Scaling& scaling, PositionPlan& plan) {
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto& rotation = plan.layers[l].rotation;
    const auto* own =
        rotation ? std::get_if<ProportionalScaling>(&trained.layers[l].rotation->scaling) : nullptr;
    if (own == nullptr || rotation->scaling == Scaling(*own)) continue;
    if (!std::holds_alternative<NoScaling>(scaling) &&
        !std::holds_alternative<LinearScaling>(scaling)) {
      Refuse(ErrorCode::kUnsupported,
             fmt::format(
                 "layer {} was trained with {}: {} would rotate pairs that do not rotate; of the "
                 "scalings only none and linear keep it",
                 l, Describe(Scaling(*own)), Describe(scaling)));
    }
    rotation->scaling = ProportionalScaling{own->fraction, FactorOf(scaling)};
  }
}

}  // namespace

const std::vector<MethodPart>& MethodParts() {
  static const std::vector<MethodPart> parts = [] {
    std::vector<MethodPart> list = DistanceMaps();
    list.push_back(
        {"log-n", "log-n attention", "Su 2021, kexue.fm/archives/8823", {"length"}, nullptr});
    list.push_back({kMscale, "attention factor", "arXiv 2309.00071", {"factor"}, nullptr});
    return list;
  }();
  return parts;
}

PositionMethod::PositionMethod() : scaling_(&Methods().front()), scaling_given_(true) {}

PositionMethod PositionMethod::Parse(const std::string& text) {
  PositionMethod method;
  method.name_ = text;
  method.scaling_given_ = false;
  for (const std::string& part : Split(text, '+')) method.AddPart(part);
  if (method.all_layers_ && method.ScalingFor(2) == Scaling(NoScaling{})) {
    Refuse(ErrorCode::kInvalidArgument,
           fmt::format("method {}: expected a scaling before {}, as in yarn+{}", text, kAllLayers,
                       kAllLayers));
  }
  return method;
}

std::optional<PositionMethod> PositionMethod::TryParse(const std::string& text) {
  try {
    return Parse(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void PositionMethod::AddPart(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const std::string settings = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (const MethodInfo* scaling = FindScaling(name)) {
    if (scaling_given_) {
      Refuse(ErrorCode::kInvalidArgument,
             fmt::format("method {}: expected one scaling of the frequencies, got {} and {}", name_,
                         scaling_->name, name));
    }
    scaling_given_ = true;
    scaling_ = scaling;
    if (colon == std::string::npos) return;
    if (!HasFactor(*scaling)) {
      Refuse(ErrorCode::kInvalidArgument,
             fmt::format("method {}: {} has nothing to set, got \"{}\"", name_, name, settings));
    }
    scaling_factor_ = ReadSettings<double>(name, settings, {"factor"}).at("factor");
    return;
  }
  if (name == kAllLayers) {
    if (all_layers_ || colon != std::string::npos) {
      Refuse(ErrorCode::kInvalidArgument,
             fmt::format("method {}: expected {} once and without settings", name_, kAllLayers));
    }
    all_layers_ = true;
    return;
  }
  const MethodPart* part = FindPart(name);
  if (part == nullptr) RefuseName(name);
  Chosen& chosen = part->make == nullptr ? temperature_ : map_;
  if (chosen.part != nullptr) {
    Refuse(ErrorCode::kInvalidArgument,
           fmt::format("method {}: expected one {}, got {} and {}", name_,
                       part->make == nullptr ? "temperature" : "distance map", chosen.part->name,
                       name));
  }
  chosen.part = part;
  if (colon != std::string::npos) {
    chosen.settings = ReadSettings<int64_t>(name, settings, part->settings);
  }
}

std::string PositionMethod::title() const {
  std::vector<std::string> titles;
  if (scaling_given_) titles.emplace_back(scaling_->title);
  for (const Chosen* c : {&map_, &temperature_}) {
    if (c->part != nullptr) titles.emplace_back(c->part->title);
  }
  return fmt::format("{}{}", fmt::join(titles, " + "), all_layers_ ? ", in all layers" : "");
}

std::string PositionMethod::source() const {
  std::vector<std::string> sources;
  if (scaling_given_) sources.emplace_back(scaling_->source);
  for (const Chosen* c : {&map_, &temperature_}) {
    if (c->part != nullptr) sources.emplace_back(c->part->source);
  }
  return fmt::format("{}", fmt::join(sources, "; "));
}

bool PositionMethod::uses_factor() const {
  constexpr int64_t kAny = 4096;
  return ScalingFor(2) != ScalingFor(3) || MapFor(2, kAny) != MapFor(3, kAny);
}

Scaling PositionMethod::ScalingFor(double factor) const {
  return scaling_->make(
      scaling_factor_.value_or(map_.part == nullptr ? factor : std::sqrt(factor)));
}

int64_t PositionMethod::Known(double factor, int64_t trained_length) const {
  return static_cast<int64_t>(static_cast<double>(trained_length) * FactorOf(ScalingFor(factor)));
}

std::optional<DistanceMap> PositionMethod::MapFor(double factor, int64_t trained_length) const {
  if (map_.part == nullptr) return std::nullopt;
  if (trained_length < 2 || !(factor >= 1 && factor <= 1e6)) {
    Refuse(ErrorCode::kInvalidArgument,
           fmt::format("method {}: expected a trained length of 2 tokens or more and a factor from "
                       "1 to 1e6, got {} and {}; give --trained N where the model does not say",
                       name_, trained_length, factor));
  }
  const int64_t target = std::llround(static_cast<double>(trained_length) * factor);
  return map_.part->make(map_.settings, Known(factor, trained_length), target);
}

std::optional<QueryTemperature> PositionMethod::TemperatureFor(int64_t trained_length) const {
  if (temperature_.part == nullptr) return std::nullopt;
  if (temperature_.part->name == std::string_view(kMscale)) {
    const auto factor = temperature_.settings.find("factor");
    const int64_t given = factor == temperature_.settings.end() ? 2 : factor->second;
    if (given < 1) {
      Refuse(
          ErrorCode::kInvalidArgument,
          fmt::format("method {}: mscale: expected a factor of 1 or more, got {}", name_, given));
    }
    return QueryTemperature{QueryTemperature::Kind::kMscale, 0.1, given, 0};
  }
  const auto given = temperature_.settings.find("length");
  const int64_t length =
      given != temperature_.settings.end() ? given->second : std::max<int64_t>(1, trained_length);
  if (length < 2) {
    Refuse(ErrorCode::kInvalidArgument,
           fmt::format("method {}: expected a trained length of 2 tokens or more, got {}; give "
                       "--trained N where the model does not say",
                       name_, length));
  }
  return QueryTemperature{QueryTemperature::Kind::kLogN, 0, length, 0};
}

PositionPlan PositionMethod::Apply(const PositionPlan& plan, double factor,
                                   int64_t trained_length) const {
  PositionPlan out = WithScaling(plan, ScalingFor(factor), trained_length);
  if (all_layers_) ScaleLocalLayers(plan, name_, ScalingFor(factor), out);
  KeepProportional(plan, ScalingFor(factor), out);
  const int64_t trained = out.trained_length;
  if (const auto map = MapFor(factor, trained)) SetMap(*map, Known(factor, trained), out);
  if (const auto temperature = TemperatureFor(trained)) SetTemperature(*temperature, out);
  return out;
}

std::string DescribeMethodTemperature(const QueryTemperature& temperature) {
  const bool mscale = temperature.kind == QueryTemperature::Kind::kMscale;
  return fmt::format("{}({} {})", mscale ? kMscale : "log-n", mscale ? "factor" : "length",
                     temperature.period);
}

std::string PositionMethod::Describe(double factor, int64_t trained_length) const {
  std::vector<std::string> words;
  if (scaling_given_ || only_scales()) words.push_back(ropewalk::Describe(ScalingFor(factor)));
  if (const auto map = MapFor(factor, trained_length)) words.push_back(ropewalk::Describe(*map));
  if (const auto temperature = TemperatureFor(trained_length)) {
    words.push_back(DescribeMethodTemperature(*temperature));
  }
  return fmt::format("{}{}", fmt::join(words, " + "), all_layers_ ? ", in all layers" : "");
}

}  // namespace ropewalk
