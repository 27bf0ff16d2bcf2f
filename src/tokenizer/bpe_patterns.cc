// Facts: the tokenizer.json of each model family as published, and the names that llama.cpp's
// converter gives them (convert_hf_to_gguf_update.py, llama-vocab.cpp).
#include "src/tokenizer/bpe_patterns.h"

#include <map>

#include "src/tokenizer/pipeline.h"

namespace ropewalk::internal {
namespace {

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define SYMBOLS R"( ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define CASED(tail)                                \
  R"([^\r\n\p{L}\p{N}]?)" UPPER "*" LOWER "+" tail \
  "|"                                              \
  R"([^\r\n\p{L}\p{N}]?)" UPPER "+" LOWER "*" tail

constexpr char kLlama3[] = CONTRACTIONS "|" WORDS R"(|\p{N}{1,3}|)" SYMBOLS "|" SPACES;
constexpr char kQwen2[] = CONTRACTIONS "|" WORDS R"(|\p{N}|)" SYMBOLS "|" SPACES;
constexpr char kQwen35[] =
    CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" SPACES;
constexpr char kSeedCoder[] = CONTRACTIONS "|" WORDS R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)" SPACES;
constexpr char kTekken[] = CASED("") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" SPACES;
constexpr char kGpt4o[] =
    CASED(CONTRACTIONS "?") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" SPACES;
constexpr char kCjk[] = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";
// Letters of the scripts that have case.
constexpr char kDeepseekLetters[] =
    R"(\s?[A-Za-z)"
    "\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF"
    "\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1"
    "\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5"
    "\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A"
    "\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D"
    "\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3"
    "\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115"
    "\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F"
    "\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3"
    "\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF"
    "\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F"
    "\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2"
    "\U000118A0-\U000118DF\U0001E900-\U0001E943]+";
constexpr char kDeepseekPunctuation[] = R"(\s?[!-/:-~)"
                                        "\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
constexpr char kDeepseek3[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
    R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)" SPACES;
#define UPPER_NOT_HAN R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
#define LOWER_NOT_HAN R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
constexpr char kKimi2[] = R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?)" UPPER_NOT_HAN "*" LOWER_NOT_HAN
                          "+" CONTRACTIONS R"(?|[^\r\n\p{L}\p{N}]?)" UPPER_NOT_HAN "+" LOWER_NOT_HAN
                          "*" CONTRACTIONS R"(?|\p{N}{1,3}|)" SYMBOLS "|" SPACES;
// As published: a class within another.
constexpr char kBloom[] = R"( ?[^(\s|[.,!?)"
                          "\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C])]+";
constexpr char kAsciiPunctuation[] = R"([\p{P}$+<=>^~|`]+)";

const std::map<std::string_view, BpePattern>& Patterns() {
  static const std::map<std::string_view, BpePattern> patterns = [] {
    const BpePattern gpt2{.cuts = {kGpt2Pattern}};
    const BpePattern gpt2_nfc{.cuts = {kGpt2Pattern}, .nfc = true};
    const BpePattern digits{.cuts = {R"(\p{N})", kGpt2Pattern}};
    const BpePattern llama3{.cuts = {kLlama3}, .ignore_merges = true, .add_bos = true};
    const BpePattern qwen2{.cuts = {kQwen2}};
    const BpePattern bloom{.cuts = {kBloom}};
    return std::map<std::string_view, BpePattern>{
        // What llama.cpp does for files that say no more than this.
        {"default",
         {.cuts = {R"([\p{P}$+<=>^~|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}}},
        {"gpt-2", gpt2},
        {"phi-2", gpt2},
        {"exaone4", gpt2},
        {"trillion", gpt2},
        {"mpt", gpt2_nfc},
        {"olmo", gpt2_nfc},
        {"gpt-neox", gpt2_nfc},
        {"starcoder", digits},
        {"refact", digits},
        {"smollm", digits},
        {"codeshell", digits},
        {"command-r", {.cuts = {R"(\p{N})", kGpt2Pattern}, .nfc = true}},
        {"llama3", llama3},
        {"llama-v3", llama3},
        {"llama-bpe", llama3},
        {"falcon3", llama3},
        {"dbrx", {.cuts = {kLlama3}}},
        {"smaug-bpe", {.cuts = {kLlama3}}},
        {"glm4", {.cuts = {kLlama3}}},
        {"chatglm-bpe", {.cuts = {kLlama3}}},
        {"tekken", {.cuts = {kTekken}, .ignore_merges = true, .add_bos = true}},
        {"gpt-4o", {.cuts = {kGpt4o}}},
        {"llama4", {.cuts = {kGpt4o}}},
        {"qwen2", {.cuts = {kQwen2}, .nfc = true}},
        {"qwen35", {.cuts = {kQwen35}, .nfc = true}},
        {"deepseek-r1-qwen", qwen2},
        {"stablelm2", qwen2},
        {"megrez", qwen2},
        {"hunyuan", qwen2},
        {"seed-coder", {.cuts = {kSeedCoder}}},
        {"kimi-k2", {.cuts = {kKimi2}}},
        {"bloom", bloom},
        {"poro-chat", bloom},
        {"gpt3-finnish", bloom},
        {"viking", {.cuts = {kBloom, R"(\p{N})"}}},
        {"falcon", {.cuts = {kAsciiPunctuation, kGpt2Pattern, "[0-9][0-9][0-9]"}}},
        {"deepseek-coder",
         {.cuts = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kCjk, R"(\p{N})"}}},
        {"deepseek-llm",
         {.cuts = {R"([\r\n])", kDeepseekLetters, kDeepseekPunctuation, R"(\s+$)", kCjk,
                   R"(\p{N}+)"}}},
        {"deepseek-v3",
         {.cuts = {R"(\p{N}{1,3})", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+", kDeepseek3}}},
    };
  }();
  return patterns;
}

}  // namespace

const BpePattern* FindBpePattern(std::string_view pre) {
  const auto found = Patterns().find(pre);
  return found == Patterns().end() ? nullptr : &found->second;
}

std::vector<std::string> BpePatternNames() {
  std::vector<std::string> names;
  for (const auto& [name, pattern] : Patterns()) names.emplace_back(name);
  return names;
}

}  // namespace ropewalk::internal
