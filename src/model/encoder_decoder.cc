#include "ropewalk/model/encoder_decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/config/tensor_names.h"
#include "src/model/tied_head.h"

namespace ropewalk {

struct EncoderDecoder::Impl {
  std::unique_ptr<Encoder> encoder;
  std::unique_ptr<Decoder> decoder;
  int32_t start_id = 0, end_id = 0;
};

namespace {

std::string NameOf(const ModelConfig& c, internal::TensorId id) {
  return std::string(c.tensor_names->Find(id)->name) + ".weight";
}

bool IsQuantised(const Weight& w) { return Info(w.type).block_elements > 1; }

// A configuration that says that the head is the embedding, with files that have another: so
// transformers 5 writes T5 1.1, whose states are not scaled, and takes the files' head; what
// transformers 4 writes so has no head of its own.
void SettleHead(const ModelFiles& files, ModelConfig& c) {
  const std::string head_name = NameOf(c, internal::TensorId::kHead);
  const std::string embedding_name = NameOf(c, internal::TensorId::kEmbedding);
  const auto head = files.tensors.find(head_name), embedding = files.tensors.find(embedding_name);
  if (!c.tied_head || head == files.tensors.end() || embedding == files.tensors.end()) return;
  // The same numbers quantised in two ways are two.
  const bool gguf = c.format == FileFormat::kGguf;
  if (gguf && (IsQuantised(head->second) || IsQuantised(embedding->second))) return;
  if (internal::SameNumbers(head->second, embedding->second)) return;
  if (gguf) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: '{}' has other numbers than '{}', but without '{}' this is the first "
                    "T5, whose head is its embedding",
                    files.path, head_name, embedding_name, "enc.blk.0.ffn_gate.weight"));
  }
  if (c.logit_scale == 1) {
    c.tied_head = false;
    return;
  }
  throw Error(ErrorCode::kInvalidConfig,
              fmt::format("{}: tie_word_embeddings is true, so that the head is '{}', but '{}' has "
                          "other numbers: transformers 4 ignores them, 5 takes them. For a head of "
                          "its own (T5 1.1, mT5, UMT5) put \"tie_word_embeddings\": false into "
                          "config.json; for T5 1.0 remove the tensor",
                          files.path, embedding_name, head_name));
}

// The same files, as those of the decoder.
ModelFiles DecoderFiles(const ModelFiles& files) {
  ModelFiles decoder;
  decoder.path = files.path;
  decoder.config = files.config.decoder->config;
  decoder.tensors = files.tensors;
  decoder.config_hash = files.config_hash;
  SettleHead(files, decoder.config);
  return decoder;
}

void CheckHasDecoder(const ModelFiles& files) {
  const ModelConfig& c = files.config;
  if (c.decoder == nullptr) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: expected an encoder-decoder model (t5, mt5, umt5), got {}{}", files.path,
                    c.architecture, c.not_runnable.empty() ? "" : ": " + c.not_runnable));
  }
  const std::string layers = c.decoder->config.tensor_names->layers;
  const bool any = std::any_of(files.tensors.begin(), files.tensors.end(),
                               [&](const auto& t) { return t.first.starts_with(layers); });
  if (!any) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: the files have no decoder (no tensor begins with '{}'), as "
                            "T5EncoderModel saves it; take the model as "
                            "T5ForConditionalGeneration saves it; ropewalk embed runs an encoder "
                            "alone",
                            files.path, layers));
  }
  if (!c.decoder->start_id) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: decoder_start_token_id is absent: expected the id "
                            "of the token that the decoder begins with (0, the padding, in the "
                            "published T5 models)",
                            files.path));
  }
}

}  // namespace

EncoderDecoder::EncoderDecoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EncoderDecoder::~EncoderDecoder() = default;

std::unique_ptr<EncoderDecoder> EncoderDecoder::Load(const ModelFiles& files,
                                                     const DecoderOptions& options) {
  CheckHasDecoder(files);
  const WeightStorage weights = ChooseStorage(files, options.compute, options.weights);
  auto impl = std::make_unique<Impl>();
  impl->encoder = Encoder::Load(files, {.compute = options.compute, .weights = weights});
  impl->decoder =
      Decoder::Load(DecoderFiles(files), {.compute = options.compute, .weights = weights});
  impl->start_id = *files.config.decoder->start_id;
  impl->end_id = files.config.decoder->end_id;
  return std::unique_ptr<EncoderDecoder>(new EncoderDecoder(std::move(impl)));
}

const Encoder& EncoderDecoder::encoder() const { return *impl_->encoder; }
const Decoder& EncoderDecoder::decoder() const { return *impl_->decoder; }
int32_t EncoderDecoder::start_id() const { return impl_->start_id; }
int32_t EncoderDecoder::end_id() const { return impl_->end_id; }

void EncoderDecoder::Read(std::span<const int32_t> ids, Sequence& sequence) const {
  std::vector<int32_t> source(ids.begin(), ids.end());
  source.push_back(impl_->end_id);
  std::vector<float> states(source.size() * static_cast<std::size_t>(encoder().config().hidden));
  encoder().Forward(source, states.data());
  decoder().ReadSource(sequence, states.data(), static_cast<int64_t>(source.size()));
}

}  // namespace ropewalk
