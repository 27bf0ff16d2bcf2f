#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "ropewalk/base/error.h"
#include "ropewalk/convert/convert.h"
#include "src/tokenizer/extras.h"

namespace ropewalk {
namespace {

using internal::ExtrasOfFolder;
using internal::ExtrasOfGguf;

constexpr double kFloat32Step = 0x1p-22;  // two roundings, of a base or factor and of a divisor

// Relative difference; 1 where one frequency is 0 and the other is not.
double Difference(const ResolvedPlan& a, const ResolvedPlan& b) {
  double largest = 0;
  for (std::size_t l = 0; l < a.layers.size(); ++l) {
    const int ia = a.layers[l].rotation, ib = b.layers[l].rotation;
    if (ia < 0 || ib < 0) {
      if (ia != ib) return 1;
      continue;
    }
    const Frequencies& fa = a.rotations[static_cast<std::size_t>(ia)].frequencies;
    const Frequencies& fb = b.rotations[static_cast<std::size_t>(ib)].frequencies;
    if (fa.inv_freq.size() != fb.inv_freq.size()) return 1;
    const auto add = [&](double x, double y) {
      if (x != y) largest = std::max(largest, std::abs(x - y) / std::max(std::abs(x), std::abs(y)));
    };
    for (std::size_t i = 0; i < fa.inv_freq.size(); ++i) {
      add(fa.inv_freq[i].hi, fb.inv_freq[i].hi);
    }
    add(fa.amplitude, fb.amplitude);
    add(fa.softmax_multiplier, fb.softmax_multiplier);
  }
  return largest;
}

constexpr char kProbe[] =
    "The year 1999 had 365 days; it's 3.14159 and 1234567, they'll say \"WE'RE\" done!!\n\n"
    "  def f(x):\n\treturn x**2  # caf\xc3\xa9 na\xc3\xafve\r\n"
    "\xe4\xbd\xa0\xe5\xa5\xbd \xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 "
    "\xe3\x81\x93\xe3\x82\x93 \xf0\x9f\x99\x82\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd e\xcc\x81 \xc2\xa0x "
    "a_b-c/d\\e@f.com   \t  end ";

[[noreturn]] void FailTokenizer(const std::string& what) {
  throw Error(ErrorCode::kMismatch, "the tokenizer did not survive: " + what +
                                        "; --no-tokenizer converts the weights alone");
}

}  // namespace

PlanProof ProvePlan(const PositionPlan& asked, const PositionPlan& stored, const PositionPlan& read,
                    int64_t served_length) {
  PlanProof proof;
  for (const int64_t length : {int64_t{1}, asked.trained_length, asked.trained_length + 1,
                               std::max<int64_t>(1, served_length)}) {
    if (length < 1) continue;
    const ResolvedPlan a = Resolve(asked, length), s = Resolve(stored, length),
                       r = Resolve(read, length);
    const double difference = a.layers.size() == s.layers.size() ? Difference(a, s) : 1;
    if (r.hash != s.hash || difference > kFloat32Step) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("the files that were written say something else than was asked for: "
                              "at {} tokens {} was asked for and plan {}, they say plan {}",
                              length, a.hash, s.hash, r.hash));
    }
    proof = {length, a.hash, r.hash, std::max(proof.largest_difference, difference)};
  }
  return proof;
}

std::vector<float> ProbeLogits(const ModelFiles& files, WeightStorage weights) {
  return ProbeLogits(files, files.config.plan, weights);
}

std::vector<float> ProbeLogits(const ModelFiles& files, const PositionPlan& plan,
                               WeightStorage weights) {
  constexpr int64_t kTokens = 48;
  const auto decoder = Decoder::Load(files, {.weights = weights});
  const ModelConfig& c = decoder->config();
  std::vector<int32_t> ids;
  uint64_t state = 12345;
  for (int64_t i = 0; i < kTokens; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(c.vocab)));
  }
  Sequence sequence(*decoder, plan, kTokens, AnglePrecision::kExact);
  std::vector<float> hidden(static_cast<std::size_t>(kTokens * c.hidden));
  std::vector<float> logits(static_cast<std::size_t>(kTokens * c.vocab));
  decoder->Forward(sequence, ids, hidden.data(), kTokens);
  decoder->Logits(hidden.data(), kTokens, logits.data());
  return logits;
}

ModelFiles AsWritten(const ModelFiles& source, const Converted& written) {
  ModelFiles out;
  out.path = source.path;
  out.config = source.config;
  out.tensors = source.tensors;
  const StoredNumbers& numbers = written.numbers;
  out.config.plan = written.stored;
  if (numbers.latent_norm_eps)
    out.config.layer.attention.latent.norm_eps = *numbers.latent_norm_eps;
  if (numbers.logit_scale) out.config.logit_scale = *numbers.logit_scale;
  return out;
}

void ProveExtras(const TokenizerExtras& written, const ModelFiles& read) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(read.path, error);
  const TokenizerExtras extras = folder
                                     ? ExtrasOfFolder(read.path, *read.tokenizer, nullptr)
                                     : ExtrasOfGguf(OpenGguf(read.path), *read.tokenizer, nullptr);
  if (extras.chat_templates != written.chat_templates) FailTokenizer("its chat templates differ");
  if (extras != written) FailTokenizer("its special tokens differ");
}

void ProveTokenizer(const Tokenizer& before, const Tokenizer& after) {
  const auto fail = FailTokenizer;
  if (before.bos_id() != after.bos_id() || before.adds_bos() != after.adds_bos()) {
    fail("its BOS token differs");
  }
  // Without one, GGUF's SentencePiece has token 2 for it; FolderToGguf says so.
  if (before.eos_id() && before.eos_id() != after.eos_id()) fail("its EOS token differs");
  std::string probe = kProbe;
  for (const auto& id : {before.bos_id(), before.eos_id()}) {
    if (id) probe += before.Piece(*id);
  }
  for (const bool special : {false, true}) {
    const std::vector<int32_t> a = before.Encode(probe, {special});
    const std::vector<int32_t> b = after.Encode(probe, {special});
    if (a == b) continue;
    const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    fail(fmt::format("token {} of a test text is {} before and {} after", at.first - a.begin(),
                     at.first == a.end() ? "none" : std::to_string(*at.first),
                     at.second == b.end() ? "none" : std::to_string(*at.second)));
  }
}

}  // namespace ropewalk
