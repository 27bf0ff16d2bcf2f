// Which files make a model, and whether they belong together.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "src/config/block.h"
#include "src/config/family.h"
#include "src/config/llama2c.h"
#include "src/config/text.h"
#include "src/io/files.h"
#include "src/model/tensor_table.h"
#include "src/model/tied_head.h"

namespace ropewalk {
namespace {

namespace fs = std::filesystem;

// An unreadable tokenizer is not an error: ids can be given instead.
template <class F>
void TryTokenizer(ModelFiles& files, F&& load) {
  try {
    files.tokenizer = load();
  } catch (const Error& e) {
    files.tokenizer_error = e.what();
  }
}

void OpenConfigJson(const std::string& path, const OpenOptions& options, ModelFiles& files) {
  const auto file = MappedFile::Open(path);
  files.config = internal::ParseConfigText(file->text(), path, options.allow_unknown);
  files.config_hash = HashHex(file->text());
}

// Names and shapes are known for the decoder's families alone.
void CheckIfRunnable(ModelFiles& files, internal::Naming naming, const std::string& where) {
  if (files.config.not_runnable.empty()) {
    internal::CheckTensors(files.config, files.tensors, naming, where);
  }
}

// Arguments of Megatron-LM come in files of any name.
bool IsConfigText(const std::string& path) {
  return !path.ends_with(".gguf") && !path.ends_with(".bin") && !path.ends_with(".safetensors") &&
         internal::IsMegatronText(MappedFile::Open(path)->text());
}

bool HasSafetensors(const fs::path& folder) {
  const std::vector<std::string> names = internal::NamesIn(folder.string());
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.ends_with(".safetensors") || name == "model.safetensors.index.json";
  });
}

// Of a model that reads images too the tensors of its text part, by the names of that part's family.
// Published files begin with "language_model.", those of newer transformers' own models have it
// behind "model.".
void KeepTextPart(ModelFiles& files) {
  constexpr const char* kOtherParts[] = {"vision_tower.", "vision_model.", "visual.",
                                         "multi_modal_projector.", "image_newline"};
  std::map<std::string, Weight> kept;
  int64_t others = 0;
  for (auto& [name, weight] : files.tensors) {
    std::string_view bare = name;
    const auto drop = [&](std::string_view start) {
      if (!bare.starts_with(start)) return false;
      bare.remove_prefix(start.size());
      return true;
    };
    const bool inner = drop("model.");
    if (std::any_of(std::begin(kOtherParts), std::end(kOtherParts),
                    [&](const char* part) { return bare.starts_with(part); })) {
      ++others;
      continue;
    }
    std::string own = name;
    if (drop("language_model.")) own = (inner ? "model." : "") + std::string(bare);
    if (!kept.emplace(own, std::move(weight)).second) {
      throw Error(
          ErrorCode::kInvalidFile,
          fmt::format("{}: tensor '{}' is there twice, with \"language_model.\" in its name "
                      "and without",
                      files.path, own));
    }
  }
  files.tensors = std::move(kept);
  files.config.plan.notes.push_back(
      fmt::format("{} tensors of other parts than the text's are not read", others));
}

// Published files have the stacked experts of some families as [in, out]; transformers 5 loads those
// and writes [out, in].
void TakeExpertLayout(ModelFiles& files) {
  const ModelConfig& c = files.config;
  const internal::Family* family = internal::FindFamily(c.architecture);
  if (!c.not_runnable.empty() || family->block == nullptr || !family->block->expert_rows) return;
  const int64_t width = c.experts.feed_forward;
  const auto is = [](const Weight& weight, int64_t out, int64_t in) {  // and not the other way
    return weight.shape.size() == 3 && weight.shape[1] == out && weight.shape[2] == in && out != in;
  };
  for (const auto& [name, weight] : files.tensors) {
    if ((name.ends_with(".experts.gate_up_proj") && is(weight, 2 * width, c.hidden)) ||
        (name.ends_with(".experts.down_proj") && is(weight, c.hidden, width))) {
      files.config.tensor_names = family->block->expert_rows;
      return;
    }
  }
}

void OpenFolder(const fs::path& folder, const OpenOptions& options, ModelFiles& files) {
  fs::path config = folder / "config.json";
  if (!internal::FileExists(config.string())) {
    config = folder / "params.json";  // Mistral's and Meta's own downloads
  }
  if (!internal::FileExists(config.string())) {
    throw Error(ErrorCode::kIo,
                fmt::format("{}: no config.json in this folder; expected a Hugging "
                            "Face model folder, or the path of a .gguf or .bin file",
                            folder.string()));
  }
  OpenConfigJson(config.string(), options, files);
  if (options.need_weights || HasSafetensors(folder)) {
    files.tensors = OpenSafetensorsFolder(folder.string());
    if (files.config.text_part) KeepTextPart(files);
    TakeExpertLayout(files);
    CheckIfRunnable(files, internal::Naming::kHuggingFace, folder.string());
    if (options.need_weights && files.config.not_runnable.empty()) {
      internal::CheckTiedHead(files.config, files.tensors, folder.string());
    }
  }
  TryTokenizer(files, [&] { return LoadTokenizerFolder(folder.string()); });
}

void OpenGgufModel(const std::string& path, const OpenOptions& options, ModelFiles& files) {
  GgufFile gguf = OpenGguf(path);
  files.config = ParseGgufConfig(gguf, options.allow_unknown);
  files.config_hash = "in the weight file";
  TryTokenizer(files, [&] { return LoadTokenizerGguf(gguf); });
  files.tensors = std::move(gguf.tensors);
  if (options.need_weights || !files.tensors.empty()) {
    CheckIfRunnable(files, internal::Naming::kGguf, path);
  }
}

void OpenLlama2cModel(const std::string& path, ModelFiles& files) {
  Llama2cFile file = OpenLlama2c(path);
  files.config = internal::Llama2cConfig(file);
  files.config_hash = "in the weight file";
  files.tensors = std::move(file.tensors);
  internal::CheckTensors(files.config, files.tensors, internal::Naming::kHuggingFace, path);
  const fs::path tokenizer = fs::path(path).parent_path() / "tokenizer.bin";
  TryTokenizer(files, [&] { return LoadTokenizerLlama2c(tokenizer.string(), files.config.vocab); });
}

}  // namespace

ModelFiles OpenModel(const std::string& path, const OpenOptions& options) {
  ModelFiles files;
  files.path = path;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) {
    OpenFolder(path, options, files);
  } else if (!internal::FileExists(path)) {
    throw Error(ErrorCode::kIo,
                fmt::format("{}: no such file or folder; expected a Hugging Face folder, a .gguf "
                            "file or a llama2.c .bin",
                            path));
  } else if (path.ends_with(".json") || IsConfigText(path)) {
    if (options.need_weights) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: a configuration alone has no weights; give the folder", path));
    }
    OpenConfigJson(path, options, files);
    files.tokenizer_error = path + ": a configuration alone has no tokenizer";
  } else if (path.ends_with(".safetensors")) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: give the folder that holds it together with config.json", path));
  } else if (path.ends_with(".gguf") || MappedFile::Open(path)->text().starts_with("GGUF")) {
    OpenGgufModel(path, options, files);
  } else if (path.ends_with(".bin")) {
    OpenLlama2cModel(path, files);
  } else {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: expected a Hugging Face folder, a .gguf file, a llama2.c .bin or a "
                    "configuration (config.json, params.json, arguments of Megatron-LM)",
                    path));
  }
  return files;
}

std::string ModelFiles::Hash() const { return HashHex(config_hash + " " + ContentHash(tensors)); }

}  // namespace ropewalk
