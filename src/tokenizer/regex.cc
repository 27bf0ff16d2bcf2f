#include "src/tokenizer/regex.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cctype>
#include <cstdint>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/tokenizer/ruby_pattern.h"
#include "src/tokenizer/unicode.h"

namespace ropewalk::internal {
namespace {

constexpr std::size_t kMaxPatternBytes = 1 << 16;
// Backtracking steps of one match: linear in the text for sane patterns (\s*[\r\n]+ over a run of
// spaces), exponential for hostile ones. 2M steps take some 50 ms.
constexpr uint32_t kBaseSteps = 2'000'000;
constexpr uint32_t kMaxSteps = 2'000'000'000;
constexpr uint32_t kHeapKibibytes = 512 * 1024;

std::string MessageOf(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0) return std::to_string(code);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, std::string where) : where_(std::move(where)) {
  if (pattern.size() > kMaxPatternBytes) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: a pattern of {} bytes; at most {} are expected", where_,
                            pattern.size(), kMaxPatternBytes));
  }
  Compile(PcrePattern(pattern, where_));
}

Regex Regex::Literal(std::string_view text, std::string where) {
  std::string pattern;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c))) {
      pattern += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      pattern += c;
    }
  }
  Regex regex;
  regex.where_ = std::move(where);
  regex.Compile(pattern);
  return regex;
}

void Regex::Compile(const std::string& pattern) {
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  // Ruby's ^ and $ are anchors of lines, always.
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &offset, context.get());
  if (code->code == nullptr) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: the pattern does not compile: {} (at byte {} of '{}')", where_,
                            MessageOf(error), offset, pattern.substr(0, 200)));
  }
  // Without JIT (no executable memory, say) the interpreter gives the same matches, slower.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  code_ = std::move(code);
}

void Regex::FindAll(std::string_view text, std::vector<Span>* matches) const {
  matches->clear();
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  if (!data || !context) throw std::bad_alloc();
  const uint64_t steps = kBaseSteps + 16 * static_cast<uint64_t>(text.size());
  pcre2_set_match_limit(context.get(),
                        steps > kMaxSteps ? kMaxSteps : static_cast<uint32_t>(steps));
  pcre2_set_heap_limit(context.get(), kHeapKibibytes);

  std::size_t at = 0;
  std::size_t last_end = std::string_view::npos;
  while (at <= text.size()) {
    const auto match = [&](uint32_t options) {
      return pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                         PCRE2_NO_UTF_CHECK | options, data.get(), context.get());
    };
    int rc = match(0);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(PCRE2_NO_JIT);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: matching the pattern failed at byte {} of a text of {}: {}; a "
                              "pattern that backtracks this much is refused",
                              where_, at, text.size(), MessageOf(rc)));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    const Span span{ends[0], ends[1]};
    if (span.first == span.second && span.first == last_end) {
      at = span.first < text.size() ? span.first + CharBytes(text[span.first]) : text.size() + 1;
      continue;
    }
    matches->push_back(span);
    at = last_end = span.second;
  }
}

}  // namespace ropewalk::internal
