#include "src/tokenizer/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "src/io/json.h"
#include "src/tokenizer/json_steps.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

struct Model {
  Vocab vocab;
  std::vector<BpeMerge> merges;
  BpeOptions options;
};

Vocab ReadVocab(const JsonNode& node) {
  Vocab vocab;
  vocab.reserve(node.Object().size());
  for (const auto& [piece, id] : node.Object().items()) {
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > INT32_MAX) {
      node.Fail(fmt::format("'{}' has id {}; ids are integers from 0", piece.substr(0, 80),
                            id.dump().substr(0, 40)));
    }
    vocab.emplace(piece, id.get<int32_t>());
  }
  if (vocab.empty()) node.Fail("the vocabulary is empty");
  return vocab;
}

std::pair<std::string, std::string> ReadMerge(const JsonNode& node) {
  if (node.value.is_array()) {
    if (node.value.size() != 2 || !node.value[0].is_string() || !node.value[1].is_string()) {
      node.Fail("a merge is a pair of strings");
    }
    return {node.value[0].get<std::string>(), node.value[1].get<std::string>()};
  }
  const std::string& line = node.String();
  const std::size_t space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
    node.Fail(
        fmt::format("'{}' is not two tokens with one space between them", line.substr(0, 80)));
  }
  return {line.substr(0, space), line.substr(space + 1)};
}

std::vector<BpeMerge> ReadMerges(const JsonNode& node, const Vocab& vocab) {
  std::vector<BpeMerge> merges;
  const json::array_t& list = node.Array();
  merges.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonNode item{list[i], node.file, fmt::format("{}[{}]", node.key, i)};
    if (list[i].is_string() && list[i].get_ref<const std::string&>().starts_with("#version")) {
      continue;
    }
    const auto [left, right] = ReadMerge(item);
    const auto id = [&](const std::string& token) {
      const auto found = vocab.find(token);
      if (found == vocab.end()) {
        item.Fail(fmt::format("the token '{}' is not in the vocabulary", token.substr(0, 80)));
      }
      return found->second;
    };
    merges.push_back({id(left), id(right), id(left + right)});
  }
  return merges;
}

int32_t ReadUnknown(const JsonNode& node, const Vocab& vocab) {
  const std::string& unk = node.At("unk_token").String();
  const auto found = vocab.find(unk);
  if (found == vocab.end()) {
    node.At("unk_token").Fail(fmt::format("'{}' is not in the vocabulary", unk.substr(0, 80)));
  }
  return found->second;
}

Model ReadWordPiece(const JsonNode& node) {
  node.Only(
      {"type", "vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"});
  Model model;
  model.vocab = ReadVocab(node.At("vocab"));
  model.options.word_piece = true;
  model.options.continuation =
      node.Has("continuing_subword_prefix") ? node.At("continuing_subword_prefix").String() : "##";
  if (node.Has("max_input_chars_per_word")) {
    model.options.longest_word = node.At("max_input_chars_per_word").Integer(0, 4096);
  }
  model.options.unk_id = ReadUnknown(node, model.vocab);
  return model;
}

Model ReadUnigram(const JsonNode& node) {
  node.Only({"type", "unk_id", "vocab", "byte_fallback"});
  Model model;
  const JsonNode list = node.At("vocab");
  for (std::size_t i = 0; i < list.Array().size(); ++i) {
    const JsonNode item{list.value[i], list.file, fmt::format("{}[{}]", list.key, i)};
    if (item.Array().size() != 2 || !item.value[0].is_string() || !item.value[1].is_number()) {
      item.Fail("a piece and its score are expected");
    }
    // Of two equal pieces the original takes the later one, and the earlier has no use.
    model.vocab.insert_or_assign(item.value[0].get<std::string>(), static_cast<int32_t>(i));
    model.options.scores.push_back(item.value[1].get<double>());
  }
  if (model.vocab.empty()) list.Fail("the vocabulary is empty");
  const auto last = static_cast<int64_t>(model.options.scores.size()) - 1;
  if (node.Has("unk_id")) {
    model.options.unk_id = static_cast<int32_t>(node.At("unk_id").Integer(0, last));
  }
  model.options.byte_fallback = node.Bool("byte_fallback", false);
  return model;
}

Model ReadModel(const JsonNode& node) {
  if (node.Has("type") && node.At("type").String() == "WordPiece") return ReadWordPiece(node);
  if (node.Has("type") && node.At("type").String() == "Unigram") return ReadUnigram(node);
  // Old files leave the type out; merges tell.
  if (node.Has("type") || !node.Has("merges")) {
    const JsonNode type = node.At("type");
    if (type.String() != "BPE") {
      type.Unsupported(fmt::format("the model '{}'", type.String().substr(0, 80)));
    }
  }
  node.Only({"type", "vocab", "merges", "dropout", "unk_token", "continuing_subword_prefix",
             "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges"});
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (node.Has(key) && !node.At(key).String().empty()) node.At(key).Unsupported("a word affix");
  }
  if (node.Has("dropout") && node.At("dropout").value != 0) {
    node.At("dropout").Unsupported("random merges");
  }
  Model model;
  model.vocab = ReadVocab(node.At("vocab"));
  model.merges = ReadMerges(node.At("merges"), model.vocab);
  model.options.fuse_unk = node.Bool("fuse_unk", false);
  model.options.byte_fallback = node.Bool("byte_fallback", false);
  model.options.ignore_merges = node.Bool("ignore_merges", false);
  if (node.Has("unk_token")) model.options.unk_id = ReadUnknown(node, model.vocab);
  return model;
}

std::vector<AddedToken> ReadAdded(const JsonNode& root) {
  std::vector<AddedToken> added;
  if (!root.Has("added_tokens")) return added;
  const JsonNode list = root.At("added_tokens");
  for (std::size_t i = 0; i < list.Array().size(); ++i) {
    const JsonNode node{list.value[i], list.file, fmt::format("added_tokens[{}]", i)};
    AddedToken token;
    token.content = node.At("content").String();
    token.id = static_cast<int32_t>(node.At("id").Integer(0, INT32_MAX));
    token.special = node.Bool("special", false);
    token.normalized = node.Bool("normalized", !token.special);
    token.single_word = node.Bool("single_word", false);
    token.lstrip = node.Bool("lstrip", false);
    token.rstrip = node.Bool("rstrip", false);
    node.Only({"content", "id", "special", "normalized", "single_word", "lstrip", "rstrip"});
    added.push_back(std::move(token));
  }
  return added;
}

// The original numbers added tokens itself, from the size of the vocabulary in the order of the
// list, whatever the file says; empty ones it leaves out.
void CheckAddedIds(const JsonNode& root, const std::vector<AddedToken>& added, const Model& model) {
  const BpeOptions& options = model.options;
  auto next =
      static_cast<int64_t>(options.scores.empty() ? model.vocab.size() : options.scores.size());
  for (const AddedToken& token : added) {
    if (token.content.empty() || model.vocab.contains(token.content)) continue;
    if (token.id != next) {
      root.At("added_tokens")
          .Fail(
              fmt::format("'{}' has id {} there and {} in Hugging Face's tokenizers, which number "
                          "the added tokens that the vocabulary lacks in the order of the list",
                          token.content.substr(0, 80), token.id, next));
    }
    ++next;
  }
}

// What a post-processor puts before and behind one text.
struct Frame {
  std::vector<int32_t> front, back;
  bool given = false;  // a step says what, be it nothing
};
Frame ReadTemplate(const JsonNode& node, int64_t vocab_size) {
  Frame frame;
  frame.given = true;
  const JsonNode single = node.At("single");
  bool behind = false;
  for (std::size_t i = 0; i < single.Array().size(); ++i) {
    const JsonNode item{single.value[i], single.file, fmt::format("{}[{}]", single.key, i)};
    if (!item.Has("SpecialToken")) {
      behind = true;
      continue;
    }
    const std::string& name = item.At("SpecialToken").At("id").String();
    const JsonNode ids = node.At("special_tokens").At(name).At("ids");
    for (std::size_t k = 0; k < ids.Array().size(); ++k) {
      const JsonNode id{ids.value[k], ids.file, fmt::format("{}[{}]", ids.key, k)};
      (behind ? frame.back : frame.front)
          .push_back(CheckedId(id.Integer(0, INT32_MAX), vocab_size, id.Where()));
    }
  }
  return frame;
}

Frame ReadFrame(const JsonNode& node, int64_t vocab_size) {
  const std::string& type = node.At("type").String();
  Frame frame;
  if (type == "TemplateProcessing") return ReadTemplate(node, vocab_size);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    frame.given = true;
    for (const auto& [key, ids] : {std::pair{"cls", &frame.front}, {"sep", &frame.back}}) {
      const JsonNode pair = node.At(key);  // ["[CLS]", 101]
      if (pair.Array().size() != 2) pair.Fail("a token and its id are expected");
      const JsonNode id{pair.value[1], pair.file, pair.key + "[1]"};
      ids->push_back(CheckedId(id.Integer(0, INT32_MAX), vocab_size, id.Where()));
    }
  } else if (type == "Sequence") {  // each around what those before it made
    const JsonNode list = node.At("processors");
    for (std::size_t i = 0; i < list.Array().size(); ++i) {
      const JsonNode item{list.value[i], list.file, fmt::format("{}[{}]", list.key, i)};
      if (!item.IsNested()) continue;
      const Frame outer = ReadFrame(item, vocab_size);
      frame.given |= outer.given;
      frame.front.insert(frame.front.begin(), outer.front.begin(), outer.front.end());
      frame.back.insert(frame.back.end(), outer.back.begin(), outer.back.end());
    }
  } else if (type != "ByteLevel") {  // which moves offsets alone
    node.At("type").Unsupported(fmt::format("the post-processor '{}'", type.substr(0, 80)));
  }
  return frame;
}

void SetSpecialTokens(const JsonNode& root, const SpecialTokens& special, bool frame_given,
                      BpeTokenizer* tokenizer) {
  const auto id_of = [&](const std::optional<std::string>& token, const std::optional<int64_t>& id,
                         const char* key) -> std::optional<int32_t> {
    if (token) {
      const auto found = tokenizer->IdOf(*token);
      if (!found) {
        root.Fail(
            fmt::format("{} '{}' of the configuration is not in the vocabulary", key, *token));
      }
      return found;
    }
    if (!id) return std::nullopt;
    // config.json describes the model, whose vocabulary may be larger than the tokenizer's.
    if (*id < 0 || *id >= tokenizer->vocab_size()) return std::nullopt;
    return static_cast<int32_t>(*id);
  };
  std::optional<int32_t> bos = id_of(special.bos_token, special.bos_id, "bos_token");
  const std::optional<int32_t> eos = id_of(special.eos_token, special.eos_id, "eos_token");
  const std::vector<int32_t>& front = tokenizer->front();
  if (front.size() > 1) {
    root.At("post_processor").Unsupported("a template that puts several tokens in front");
  }
  // transformers 4 makes the post-processor of some classes anew; 5 leaves it as it is, except
  // GPTNeoX's, which it drops.
  bool adds_bos = !front.empty();
  if (special.class_adds_bos) {
    const bool four = special.add_bos.value_or(*special.class_adds_bos) && (bos || adds_bos);
    const bool five = adds_bos && *special.class_adds_bos;
    if (four == five || !frame_given) adds_bos = four;
    if (four != five) {
      tokenizer->AddNote(fmt::format(
          "transformers {} a BOS token for this tokenizer, transformers {} does not; here it is {}",
          four ? "4 adds" : "5 adds", four ? 5 : 4, adds_bos ? "added" : "not added"));
    }
  }
  if (adds_bos && !front.empty()) bos = front[0];
  tokenizer->SetSpecial(bos, eos, adds_bos);
}

}  // namespace

int32_t CheckedId(int64_t id, int64_t vocab_size, const std::string& where) {
  if (id < 0 || id >= vocab_size) {
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format("{}: id {} is outside the vocabulary of {} tokens", where, id, vocab_size));
  }
  return static_cast<int32_t>(id);
}

std::unique_ptr<BpeTokenizer> ReadTokenizerJson(std::string_view text, const std::string& file,
                                                const SpecialTokens& special) {
  const json document = ParseJson(text, file);
  const JsonNode root{document, file, ""};
  root.Only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
             "post_processor", "decoder", "model"});
  Model model = ReadModel(root.At("model"));
  BpeParts parts;
  parts.file = file;
  parts.added = ReadAdded(root);
  CheckAddedIds(root, parts.added, model);
  if (root.Has("normalizer")) ReadNormalizer(root.At("normalizer"), &parts.normalizer);
  if (root.Has("pre_tokenizer")) ReadPreTokenizer(root.At("pre_tokenizer"), &parts.words);
  const bool byte_level =
      std::any_of(parts.words.begin(), parts.words.end(),
                  [](const WordStep& step) { return std::holds_alternative<ByteMapStep>(step); });
  if (root.Has("decoder")) {
    ReadDecoder(root.At("decoder"), &parts.decoding.steps);
  } else {
    parts.decoding.between = " ";
  }
  const bool word_piece = model.options.word_piece;
  const char* kind = word_piece                      ? "WordPiece (tokenizer.json)"
                     : !model.options.scores.empty() ? "Unigram (tokenizer.json)"
                     : byte_level                    ? "byte-level BPE (tokenizer.json)"
                     : model.options.byte_fallback   ? "byte-fallback BPE (tokenizer.json)"
                                                     : "BPE (tokenizer.json)";
  parts.bpe = Bpe(std::move(model.vocab), model.merges, model.options);
  auto tokenizer = std::make_unique<BpeTokenizer>(std::move(parts), kind, HashHex(text));
  bool frame_given = false;
  if (root.Has("post_processor")) {
    Frame frame = ReadFrame(root.At("post_processor"), tokenizer->vocab_size());
    frame_given = frame.given;
    tokenizer->SetFrame(std::move(frame.front), std::move(frame.back));
  }
  if (!word_piece) SetSpecialTokens(root, special, frame_given, tokenizer.get());
  return tokenizer;
}

}  // namespace ropewalk::internal
