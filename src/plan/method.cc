#include "ropewalk/plan/method.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "ropewalk/base/error.h"
#include "ropewalk/base/did_you_mean.h"

namespace ropewalk {
namespace {

// Encodings of the library that are no methods: a model learns with one from the start. tests/cli
// holds the list against the pages of docs/.
constexpr const char* kTrainedEncodings[] = {
    "alibi",     "complex-order",  "convolutional",  "cope",       "deberta",
    "digits",    "fire",           "floater",        "fope",       "forgetting-gate",
    "kerple",    "learned",        "multiplicative", "nope",       "pope",
    "recurrent", "sandwich",       "shaw",           "sinusoidal", "swin",
    "t5",        "transformer-xl", "tupe",           "xpos"};

using Settings = std::map<std::string, int64_t>;

[[noreturn]] void Refuse(ErrorCode code, const std::string& message) { throw Error(code, message); }

int64_t Get(const Settings& settings, const char* key, int64_t otherwise) {
  const auto found = settings.find(key);
  return found == settings.end() ? std::max<int64_t>(1, otherwise) : found->second;
}

// Su 2023: a quarter to a half of the trained length.
DistanceMap MakeRerope(const Settings& s, int64_t known, int64_t) {
  return Rerope{Get(s, "window", known / 2)};
}

// window + (target - 1 - window) / factor < known
DistanceMap MakeLeakyRerope(const Settings& s, int64_t known, int64_t target) {
  const int64_t window = Get(s, "window", known / 2);
  const int64_t room = std::max<int64_t>(1, known - window);
  return LeakyRerope{window, Get(s, "factor", (target - window + room - 1) / room)};
}

// The smallest group that keeps every distance known.
DistanceMap MakeSelfExtend(const Settings& s, int64_t known, int64_t target) {
  SelfExtend m{Get(s, "window", known / 4), 1};
  const int64_t room = std::max<int64_t>(1, known - m.window);
  m.group = std::max<int64_t>(1, (target - m.window) / room);
  while (m.group < target && LargestRelativePosition(m, target) >= static_cast<double>(known)) {
    ++m.group;
  }
  m.group = Get(s, "group", m.group);
  return m;
}

DistanceMap MakeDualChunk(const Settings& s, int64_t known, int64_t) {
  const int64_t chunk = Get(s, "chunk", known / 4 * 3);
  return DualChunk{chunk, Get(s, "limit", std::min(known - 1, 2 * chunk))};
}

DistanceMap MakeSinks(const Settings& s, int64_t known, int64_t) {
  const int64_t sinks = Get(s, "sinks", std::min<int64_t>(4, known / 2));
  return AttentionSinks{sinks, Get(s, "window", known - sinks)};
}

// Whether the method's scaling has a factor of its own.
bool HasFactor(const MethodInfo& scaling) {
  return Describe(scaling.make(2)) != Describe(scaling.make(3));
}

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
  const bool trained = std::find(std::begin(kTrainedEncodings), std::end(kTrainedEncodings),
                                 plain) != std::end(kTrainedEncodings);
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
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    LayerPlan& layer = plan.layers[l];
    if (layer.recurrent || KnowsAll(layer, temperature.period)) continue;
    if (layer.temperature && (layer.temperature->kind != temperature.kind ||
                              layer.temperature->period != temperature.period)) {
      Refuse(ErrorCode::kUnsupported,
             fmt::format("log-n: layer {} of this model has a temperature of its own, which was "
                         "trained; two would multiply",
                         l));
    }
    layer.temperature = temperature;
  }
}

}  // namespace

const std::vector<MethodPart>& MethodParts() {
  static const std::vector<MethodPart> parts = {
      {"rerope", "ReRoPE", "Su 2023, kexue.fm/archives/9708", {"window"}, MakeRerope},
      {"leaky-rerope",
       "leaky ReRoPE",
       "Su 2023, kexue.fm/archives/9708",
       {"window", "factor"},
       MakeLeakyRerope},
      {"self-extend", "Self-Extend", "arXiv 2401.01325", {"window", "group"}, MakeSelfExtend},
      {"dual-chunk", "dual chunk attention", "arXiv 2402.17463", {"chunk", "limit"}, MakeDualChunk},
      {"sinks", "window and attention sinks", "arXiv 2309.17453", {"sinks", "window"}, MakeSinks},
      {"log-n", "log-n attention", "Su 2021, kexue.fm/archives/8823", {"length"}, nullptr},
  };
  return parts;
}

PositionMethod PositionMethod::Parse(const std::string& text) {
  PositionMethod method;
  method.name_ = text;
  method.scaling_ = &Methods().front();
  for (const std::string& part : Split(text, '+')) method.AddPart(part);
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
  return fmt::format("{}", fmt::join(titles, " + "));
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
  return Describe(2, kAny) != Describe(3, kAny);
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
  const int64_t length = Get(temperature_.settings, "length", trained_length);
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
  const int64_t trained = out.trained_length;
  if (const auto map = MapFor(factor, trained)) SetMap(*map, Known(factor, trained), out);
  if (const auto temperature = TemperatureFor(trained)) SetTemperature(*temperature, out);
  return out;
}

std::string PositionMethod::Describe(double factor, int64_t trained_length) const {
  std::vector<std::string> words;
  if (scaling_given_ || only_scales()) words.push_back(ropewalk::Describe(ScalingFor(factor)));
  if (const auto map = MapFor(factor, trained_length)) words.push_back(ropewalk::Describe(*map));
  if (const auto temperature = TemperatureFor(trained_length)) {
    words.push_back(fmt::format("log-n(length {})", temperature->period));
  }
  return fmt::format("{}", fmt::join(words, " + "));
}

}  // namespace ropewalk
