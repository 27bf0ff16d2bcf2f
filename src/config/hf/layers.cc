// Which layers slide, attend in chunks, do not attend, do not rotate.
#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/config/hf/config.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

constexpr int64_t kMaxInterval = int64_t{1} << 40;

bool Attends(const std::string& type) { return type.find("attention") != std::string::npos; }
bool IsLinear(const std::string& type) { return type == "linear_attention" || !Attends(type); }

// layer_types; empty when it is absent.
std::vector<std::string> ReadTypeList(const HfSource& source, int64_t layers) {
  std::vector<std::string> types;
  const json* list = source.top.Find("layer_types");
  if (list == nullptr) return types;
  std::string kinds = fmt::format("\"{}\", \"{}\"", kFull, kSliding);
  for (const std::string& kind : WordsOf(source.family.layer_kinds)) {
    kinds += fmt::format(", \"{}\"", kind);
  }
  const std::string expected = fmt::format("an array of {} times one of {}", layers, kinds);
  if (!list->is_array() || static_cast<int64_t>(list->size()) != layers) {
    source.top.Fail("layer_types", expected);
  }
  for (const auto& item : *list) {
    const std::string type = item.is_string() ? item.get<std::string>() : "";
    if (type != kFull && type != kSliding && !HasWord(source.family.layer_kinds, type)) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: layer_types: expected {}, item {} is {}", source.top.where(),
                              expected, types.size(), Shown(item)));
    }
    types.push_back(type);
  }
  return types;
}

// "LLLG" is EXAONE's way to write 4: three local layers, then a global one.
int64_t ReadPatternKey(const HfSource& source, const char* key) {
  const json* value = source.top.Find(key);
  if (value == nullptr) return 0;
  if (!value->is_string()) return *source.top.Int(key, 0, kMaxInterval);
  const auto& text = value->get_ref<const std::string&>();
  if (text.empty() || text.back() != 'G' || text.find_first_not_of('L') != text.size() - 1) {
    source.top.Fail(key, "an integer, or letters L with one G at the end");
  }
  return static_cast<int64_t>(text.size());
}

// Every n-th layer is full; 0: no pattern. `given`: a key says it, not the family. transformers writes
// _sliding_window_pattern with its default beside any layer_types, and reads it without them alone.
int64_t ReadPattern(const HfSource& source, bool listed, bool& given) {
  int64_t pattern = 0;
  std::string from;
  for (const char* key :
       {"sliding_window_pattern", "_sliding_window_pattern", "full_attention_interval"}) {
    if (!source.family.Takes(key)) continue;
    const int64_t n = ReadPatternKey(source, key);
    if (n == 0 || (listed && key[0] == '_')) continue;
    if (pattern != 0 && n != pattern) {
      Contradiction(source.top.where(), from, fmt::format("{}", pattern), key,
                    fmt::format("{}", n));
    }
    pattern = n, from = key;
  }
  given = pattern != 0;
  return given ? pattern : source.family.pattern;
}

struct LayerWindow {
  int64_t tokens = 0;
  int64_t first_layer = 0;  // of those that slide by number
};

LayerWindow ReadWindow(const HfSource& source, bool some_slide, ModelConfig& c) {
  const JsonObject& top = source.top;
  const Family& family = source.family;
  LayerWindow window;
  window.tokens = top.Int("sliding_window", 0, kMaxTokens).value_or(0);
  // The defaults of Qwen 2 and 3, and of Qwen2-VL; Qwen 3's mixture of experts has no such key.
  const int64_t first = !family.Reads("max_window_layers")  ? 0
                        : family.axes == Family::Axes::kOne ? 28
                                                            : 80;
  window.first_layer = top.Int("max_window_layers", 0, kMaxInterval).value_or(first);
  const bool by_flag = family.window == Family::Window::kFromMaxWindowLayers;
  // Off where absent: Qwen's, and SmolLM3's where layer_types does not say which layers slide.
  const bool off = by_flag || (family.Takes("use_sliding_window") && !top.Has("layer_types") &&
                               family.window == Family::Window::kNone);
  const bool use = top.Bool("use_sliding_window").value_or(!off);
  if (!use) {
    window.tokens = 0;
  } else if (!top.value().contains("sliding_window") && family.default_window > 0 && some_slide) {
    window.tokens = family.default_window;
    c.plan.notes.push_back(fmt::format("sliding_window is absent: {} tokens, the default of {}",
                                       window.tokens, family.name));
  }
  return window;
}

std::vector<std::string> TypesByRule(const HfSource& source, int64_t layers, int64_t pattern,
                                     const LayerWindow& window) {
  const Family& family = source.family;
  const bool linear = HasWord(family.layer_kinds, "linear_attention");
  std::vector<std::string> types(layers, kFull);
  for (int64_t l = 0; l < layers; ++l) {
    if (pattern > 0) {
      const bool full = (l + 1) % pattern == 0;
      if (!full) types[l] = linear ? "linear_attention" : kSliding;
    } else if (window.tokens > 0 && (family.window == Family::Window::kAll ||
                                     (family.window == Family::Window::kFromMaxWindowLayers &&
                                      l >= window.first_layer))) {
      types[l] = kSliding;
    }
  }
  return types;
}

void CheckPattern(const HfSource& source, int64_t pattern, const std::vector<std::string>& types) {
  for (std::size_t l = 0; l < types.size(); ++l) {
    const bool full = (static_cast<int64_t>(l) + 1) % pattern == 0;
    if (full != (types[l] == kFull)) {
      Contradiction(source.top.where(), fmt::format("layer_types[{}]", l), types[l],
                    "the pattern's every n-th full layer", fmt::format("{}", pattern));
    }
  }
}

// The type of every layer, and the window of those that slide.
std::vector<std::string> ReadTypes(const HfSource& source, ModelConfig& c, int64_t& window_tokens) {
  std::vector<std::string> types = ReadTypeList(source, c.layers);
  const bool listed = !types.empty();
  bool given = false;
  int64_t pattern = ReadPattern(source, listed, given);
  const bool null_window =
      source.top.value().contains("sliding_window") && !source.top.Has("sliding_window");
  const bool linear = HasWord(source.family.layer_kinds, "linear_attention");
  if (null_window && !linear) pattern = 0;  // EXAONE 4 and others: nothing slides then
  const LayerWindow window =
      ReadWindow(source, listed || pattern > 0 || source.family.window != Family::Window::kNone, c);
  window_tokens = window.tokens;
  if (!listed) {
    if (window.tokens > 0 && pattern == 0 && source.family.window == Family::Window::kNone) {
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("{}: sliding_window = {}: which layers of a {} model slide is for "
                      "layer_types to say, which is absent; remove the one or add the other",
                      source.top.where(), window.tokens, source.family.name));
    }
    types = TypesByRule(source, c.layers, pattern, window);
  } else if (given && pattern > 0) {
    CheckPattern(source, pattern, types);
  }
  // Gemma 4's last layer is always a full one.
  if (source.family.Has(kGlobalHeadDim) && types.back() != kFull) {
    c.plan.notes.push_back(fmt::format("layer {} is a full one, as the last of every {} model",
                                       types.size() - 1, source.family.name));
    types.back() = kFull;
  }
  return types;
}

// True where a layer rotates. no_rope_layers is SmolLM3's and Llama 4's list, in which 1 means that
// it does.
std::vector<bool> ReadRotating(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  std::vector<bool> rotates(c.layers, true);
  const auto interval = top.Int("no_rope_layer_interval", 1, kMaxInterval);
  const int64_t n = interval.value_or(source.family.no_rope_interval);
  const auto by_interval = [&](int64_t l) { return n == 0 || (l + 1) % n != 0; };
  const auto list = top.Numbers("no_rope_layers", 0, 1);
  const bool listed = list && !list->empty();  // Llama 4 writes [] for absent
  if (listed && static_cast<int64_t>(list->size()) != c.layers) {
    top.Fail("no_rope_layers", fmt::format("an array of {} zeros and ones", c.layers));
  }
  bool differs = false;
  for (int64_t l = 0; l < c.layers; ++l) {
    rotates[l] = listed ? (*list)[l] != 0 : by_interval(l);
    differs = differs || rotates[l] != by_interval(l);
  }
  // transformers writes the interval, at its default too, beside any list, and reads the list alone.
  if (listed && interval && differs) {
    c.plan.notes.push_back(fmt::format(
        "no_rope_layer_interval = {} does not count beside no_rope_layers, which says otherwise",
        *interval));
  }
  if (std::find(rotates.begin(), rotates.end(), false) != rotates.end()) {
    c.plan.notes.push_back("no_rope_layers: 1 means that a layer rotates (SmolLM3, Llama 4)");
  }
  return rotates;
}

// Layers that attend to an image, not to the text (Llama 3.2 vision): nothing rotates there.
void ReadCrossAttention(const HfSource& source, std::vector<LayerFacts>& layers, ModelConfig& c) {
  if (!source.family.Takes("cross_attention_layers")) return;
  std::vector<double> list;
  if (const auto given = source.top.Numbers("cross_attention_layers", 0, double(kMaxLayers))) {
    list = *given;
  } else {
    for (int64_t l = 3; l < c.layers; l += 5) list.push_back(double(l));
    c.plan.notes.push_back("cross_attention_layers is absent: 3, 8, 13, ..., the default");
  }
  for (const double l : list) {
    if (l >= double(c.layers)) source.top.Fail("cross_attention_layers", "numbers of layers");
    layers[static_cast<std::size_t>(l)].rotates = false;
  }
}

void ReadChunks(const HfSource& source, std::vector<LayerFacts>& layers) {
  if (!source.family.Takes("attention_chunk_size")) return;
  const bool null = source.top.value().contains("attention_chunk_size");
  const int64_t chunk = source.top.Int("attention_chunk_size", 1, kMaxTokens)
                            .value_or(null ? 0 : /*Llama 4's default*/ 8192);
  const bool listed = source.top.Has("layer_types");
  for (LayerFacts& layer : layers) {
    const bool chunked = listed ? layer.type == "chunked_attention" : layer.rotates;
    if (chunked) layer.chunk_tokens = chunk, layer.type = "chunked_attention";
  }
}

}  // namespace

std::vector<LayerFacts> ReadHfLayers(const HfSource& source, ModelConfig& c) {
  int64_t window = 0;
  const std::vector<std::string> types = ReadTypes(source, c, window);
  const std::vector<bool> rotates = ReadRotating(source, c);
  // EXAONE 4's full layers rotate where sliding_window is null, whatever layer_types says.
  const bool null_window =
      source.top.value().contains("sliding_window") && !source.top.Has("sliding_window");
  std::vector<LayerFacts> layers(c.layers);
  int64_t linear = 0;
  for (int64_t l = 0; l < c.layers; ++l) {
    LayerFacts& layer = layers[l];
    layer.type = types[l] == "attention" ? kFull : types[l];
    layer.rotates = rotates[l];
    if (layer.type == kSliding) {
      if (window == 0) {
        throw Error(ErrorCode::kInvalidConfig,
                    fmt::format("{}: layer_types says that layer {} slides but sliding_window is "
                                "absent or switched off",
                                source.top.where(), l));
      }
      layer.window_tokens = window;
    } else if (IsLinear(layer.type)) {
      layer.rotates = false;
      layer.recurrent = true;
      ++linear;
    } else if (!null_window && source.family.Has(kOnlySlidingRotate)) {
      layer.rotates = false;
    }
  }
  if (linear > 0) {
    c.plan.notes.push_back(fmt::format(
        "{} of {} layers are recurrent (linear attention or state space): they have no positions",
        linear, c.layers));
  }
  ReadCrossAttention(source, layers, c);
  ReadChunks(source, layers);
  return layers;
}

}  // namespace ropewalk::internal
