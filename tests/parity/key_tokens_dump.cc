// Losses, key tokens and LongPPL as one JSON object: what longppl.py holds against PyPI's longppl.
//
//   key_tokens_dump MODEL TEXT DOCUMENT K BOS
//
// BOS is the id in front of each document of the evaluator, or -1. The model itself is evaluated as
// longppl does it, in windows of the same documents without BOS. Of `tokens`: index in the text,
// loss behind the document, loss behind the short context.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ropewalk/eval/decoder_engine.h"
#include "ropewalk/eval/key_tokens.h"

namespace {

using namespace ropewalk;

nlohmann::json Dump(const ModelFiles& files, const std::string& text, KeyTokenSettings settings,
                    int32_t bos) {
  const auto decoder = Decoder::Load(files);
  const DecoderEngine engine(*decoder);
  const PositionPlan& plan = files.config.plan;
  const TokenText tokens = TokenizeText(*files.tokenizer, text);
  RunOptions options;
  settings.bos = bos >= 0;
  if (settings.bos) options.bos_id = bos;
  const KeyTokens found = FindKeyTokens(engine, plan, text, tokens, settings, {}, {}, options);
  nlohmann::json rows = nlohmann::json::array(), spans = nlohmann::json::array();
  for (const ContextGain& gain : found.gains) {
    rows.push_back({gain.token, -gain.lcl, gain.lsd - gain.lcl});
  }
  for (const ByteSpan& span : found.spans.spans) spans.push_back({span.begin, span.end});

  Protocol protocol = Protocol::Parse("windows");
  protocol.anchors = 0;
  const int64_t length =
      std::min(settings.document - (settings.bos ? 1 : 0), static_cast<int64_t>(tokens.ids.size()));
  const PerplexityResult all =
      MeasurePerplexity(engine, plan, tokens, protocol, length, length, options);
  const KeyTokenResult key = ScoreKeyTokens(all, MakeWindows(tokens, protocol, length, length, {}),
                                            false, KeyTokenIndices(text, tokens, found.spans));
  return {{"ids", tokens.ids},
          {"tokens", rows},
          {"spans", spans},
          {"key_tokens", key.key_tokens},
          {"window_keys", key.window_keys},
          {"longppl", key.longppl},
          {"perplexity", all.perplexity}};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) {
    std::fprintf(stderr, "usage: key_tokens_dump MODEL TEXT DOCUMENT K BOS\n");
    return 2;
  }
  std::ostringstream text;
  text << std::ifstream(argv[2], std::ios::binary).rdbuf();
  const ModelFiles files = OpenModel(argv[1]);
  const KeyTokenSettings settings = KeyTokenSettings::For(std::atoll(argv[3]), std::atoll(argv[4]));
  std::printf("%s\n", Dump(files, text.str(), settings, std::atoi(argv[5])).dump().c_str());
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "key_tokens_dump: %s\n", e.what());
  return 1;
}
