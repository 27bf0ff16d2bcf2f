// Passkey retrieval (Mohtashami & Jaggi 2023, arXiv 2305.16300): a number hidden in running text,
// asked for at the end.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/eval.h"
#include "src/eval/rng.h"

namespace ropewalk {
namespace {

std::string Fill(std::string text, const std::string& key) {
  for (size_t at = text.find("{key}"); at != std::string::npos; at = text.find("{key}", at)) {
    text.replace(at, 5, key);
    at += key.size();
  }
  return text;
}

// Tokenizers that put a space in front of every text would make " a" begin with two.
bool AddsSpace(const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = tokenizer.Encode("x");
  if (ids.empty()) return false;
  const std::string piece = tokenizer.Piece(ids[0]);
  return piece.starts_with("\xe2\x96\x81") || piece.starts_with("\xc4\xa0") ||  // ▁, Ġ
         piece.starts_with(" ");
}

struct Pieces {
  std::vector<int32_t> needle, question, answer;
  int64_t tokens() const {
    return static_cast<int64_t>(needle.size() + question.size() + answer.size());
  }
};

std::vector<int32_t> EncodePiece(const Tokenizer& tokenizer, std::string_view text) {
  if (text.starts_with(" ") && AddsSpace(tokenizer)) text.remove_prefix(1);
  return tokenizer.Encode(text);
}

Pieces EncodePieces(const Tokenizer& tokenizer, const std::string& key) {
  const PasskeyTemplate& words = BuiltinPasskey();
  return {EncodePiece(tokenizer, Fill(words.needle, key)), EncodePiece(tokenizer, words.question),
          EncodePiece(tokenizer, Fill(words.answer, key))};
}

std::string DrawKey(internal::SplitMix64& rng) {
  std::string key(1, static_cast<char>('1' + rng.Below(9)));
  while (static_cast<int64_t>(key.size()) < BuiltinPasskey().digits) {
    key += static_cast<char>('0' + rng.Below(10));
  }
  return key;
}

// The answer, teacher-forced. Prompts with the same filler share what stands in front of the
// needle.
ScoreRequest RequestFor(const PasskeyPrompt& prompt) {
  const std::span ids(prompt.ids);
  ScoreRequest request{.prefix = ids.first(prompt.needle_begin),
                       .ids = ids.subspan(prompt.needle_begin)};
  request.positions.resize(prompt.ids.size() - prompt.answer_begin);
  std::iota(request.positions.begin(), request.positions.end(), prompt.answer_begin);
  return request;
}

}  // namespace

const PasskeyTemplate& BuiltinPasskey() {
  static const PasskeyTemplate kTemplate = {
      "ropewalk-passkey-1",
      " The pass key is {key}. Remember it. {key} is the pass key.",
      " What is the pass key? The pass key is",
      " {key}",
      " The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.",
      5};
  return kTemplate;
}

int64_t MinPasskeyTokens(const Tokenizer& tokenizer, bool bos) {
  // Keys may differ in tokens where digits are merged; each of these has as many as any.
  int64_t most = 0;
  for (const char* key : {"11111", "12345", "90817", "74063", "50000"}) {
    most = std::max(most, EncodePieces(tokenizer, key).tokens());
  }
  return most + (bos ? 1 : 0);
}

PasskeyPrompt MakePasskeyPrompt(const Tokenizer& tokenizer, std::span<const int32_t> filler,
                                int64_t filler_begin, int64_t length, double depth,
                                const std::string& key, std::optional<int32_t> bos_id) {
  const Pieces pieces = EncodePieces(tokenizer, key);
  const int64_t needed = pieces.tokens() + (bos_id ? 1 : 0);
  if (length < needed) {
    throw Error(ErrorCode::kInvalidArgument,
                "a passkey prompt with this tokenizer needs at least " + std::to_string(needed) +
                    " tokens, the length is " + std::to_string(length));
  }
  if (filler.empty() || !(depth >= 0 && depth <= 1) || filler_begin < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "passkey: expected filler of at least one token, a depth from 0 to 1 and a first "
                "filler token >= 0; got " +
                    std::to_string(filler.size()) + " tokens, depth " + std::to_string(depth) +
                    ", first token " + std::to_string(filler_begin));
  }
  const int64_t count = length - needed;
  const int64_t in_front =
      static_cast<int64_t>(std::floor(depth * static_cast<double>(count) + 0.5));
  PasskeyPrompt prompt;
  prompt.ids.reserve(static_cast<size_t>(length));
  if (bos_id) prompt.ids.push_back(*bos_id);
  const auto append = [&](const std::vector<int32_t>& ids) {
    prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
  };
  const auto fill = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      prompt.ids.push_back(filler[static_cast<size_t>(filler_begin + i) % filler.size()]);
    }
  };
  fill(0, in_front);
  prompt.needle_begin = static_cast<int64_t>(prompt.ids.size());
  append(pieces.needle);
  fill(in_front, count);
  append(pieces.question);
  prompt.answer_begin = static_cast<int64_t>(prompt.ids.size());
  append(pieces.answer);
  return prompt;
}

PasskeyResult MeasurePasskey(const ScoringEngine& engine, const PositionPlan& plan,
                             const Tokenizer& tokenizer, std::span<const int32_t> filler,
                             int64_t length, const PasskeyOptions& passkey,
                             const RunOptions& options) {
  if (passkey.bos && !options.bos_id) {
    throw Error(ErrorCode::kInvalidArgument,
                "BOS was asked for, but the model names no BOS token; use --no-bos");
  }
  std::vector<int32_t> default_filler;
  if (filler.empty()) {
    default_filler = EncodePiece(tokenizer, BuiltinPasskey().default_filler);
    filler = default_filler;
  }
  const int64_t per_depth = passkey.trials;
  const int64_t all_trials = per_depth * static_cast<int64_t>(passkey.depths.size());
  if (all_trials < 1) {
    throw Error(ErrorCode::kInvalidArgument, "passkey: expected at least one depth and one trial");
  }
  int64_t done_tokens = 0;
  const auto tick = [&](int64_t tokens) {
    done_tokens += tokens;
    if (options.progress && !options.progress(done_tokens, all_trials * (length - 1))) {
      throw Interrupted();
    }
  };
  PasskeyResult result;
  std::vector<PasskeyPrompt> prompts;
  internal::SplitMix64 rng(passkey.seed ^ (0x706173736b657900u + static_cast<uint64_t>(length)));
  const int64_t filler_room = std::max<int64_t>(1, static_cast<int64_t>(filler.size()) - length);
  for (int64_t i = 0; i < all_trials; ++i) {
    PasskeyTrial& trial = result.trials.emplace_back();
    trial.depth = passkey.depths[static_cast<size_t>(i / per_depth)];
    trial.key = DrawKey(rng);
    const PasskeyPrompt& prompt = prompts.emplace_back(
        MakePasskeyPrompt(tokenizer, filler, rng.Below(filler_room), length, trial.depth, trial.key,
                          passkey.bos ? options.bos_id : std::nullopt));
    trial.prompt_tokens = static_cast<int64_t>(prompt.ids.size());
    trial.needle_token = prompt.needle_begin;
  }
  std::vector<ScoreRequest> requests;
  requests.reserve(prompts.size());
  for (const PasskeyPrompt& prompt : prompts) requests.push_back(RequestFor(prompt));
  const Scores scores = engine.Score(
      {.plan = &plan, .final_length = length, .angles = options.angles, .tick = tick}, requests);
  int64_t hits = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    PasskeyTrial& trial = result.trials[i];
    trial.exact = true;
    for (size_t j = 0; j < requests[i].positions.size(); ++j) {
      const TokenScore& score = scores.tokens[i][j];
      trial.exact = trial.exact && score.top == prompts[i].ids[requests[i].positions[j]];
      trial.key_nll -= score.log_prob;
    }
    hits += trial.exact ? 1 : 0;
  }
  result.accuracy = static_cast<double>(hits) / static_cast<double>(all_trials);
  return result;
}

}  // namespace ropewalk
