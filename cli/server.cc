#include "cli/server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "cli/options.h"
#include "ropewalk/base/error.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kTops = 10;                         // tokens behind a prompt
constexpr int64_t kMostBytes = int64_t{4} << 20;  // of an answer, and more for each token of it
constexpr int64_t kMostTokenBytes = 2048;
constexpr float kMostLogProb = 1e-3f;  // 0, and what rounding adds

std::string KeyOfEnvironment() {
  const char* key = std::getenv("OPENAI_API_KEY");
  return key == nullptr ? "" : key;
}

[[noreturn]] void Unexpected(const std::string& what) {
  throw Error(ErrorCode::kInvalidFile, "the server's answer is not what was asked for: " + what);
}

// A member of an object, null where there is none.
Json At(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) ? json[key] : Json();
}

Json First(const Json& json) { return json.is_array() && !json.empty() ? json[0] : Json(); }

int64_t Positive(const Json& json) {
  return json.is_number_integer() && json > 0 && json < int64_t{1} << 40 ? json.get<int64_t>() : 0;
}

float LogProb(const Json& json, const std::string& of) {
  if (json.is_number()) {
    const auto value = json.get<float>();
    if (std::isfinite(value) && value <= kMostLogProb) return value;
  }
  Unexpected(fmt::format("the log-probability of {} is {}", of, json.dump().substr(0, 40)));
}

// "token_id:17", as vLLM writes ids when asked to; -1 for other texts.
int64_t WrittenId(const std::string& text) {
  constexpr std::string_view kMark = "token_id:";
  int64_t id = -1;
  if (!text.starts_with(kMark)) return -1;
  const char* end = text.data() + text.size();
  const auto [p, error] = std::from_chars(text.data() + kMark.size(), end, id);
  return error == std::errc() && p == end ? id : -1;
}

int32_t CheckedId(int64_t id, int64_t vocab) {
  if (id >= 0 && id < vocab) return static_cast<int32_t>(id);
  throw Error(ErrorCode::kMismatch,
              fmt::format("the server answers with token {}, and the model here has ids below {}: "
                          "the server has another model",
                          id, vocab));
}

// The prompt that was read is the one that was sent.
void CheckUsage(const Json& answer, std::size_t sent) {
  const Json read = At(At(answer, "usage"), "prompt_tokens");
  if (!read.is_number_integer() || read == sent) return;
  throw Error(ErrorCode::kMismatch,
              fmt::format("the server read {} tokens of a prompt of {}: it adds tokens or cuts the "
                          "prompt",
                          read.dump(), sent));
}

Json LogProbs(const Json& answer) { return At(First(At(answer, "choices")), "logprobs"); }

// What a refusal says in words: {"error": {"message": ..}}, {"message": ..}, {"detail": ..}.
std::string MessageOf(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  for (const Json& said : {At(At(json, "error"), "message"), At(json, "error"), At(json, "message"),
                           At(json, "detail")}) {
    if (said.is_string()) return said.get<std::string>().substr(0, 300);
  }
  return body.substr(0, 200);
}

std::vector<ServedModel> ModelsOf(const Json& list) {
  std::vector<ServedModel> models;
  const Json data = At(list, "data");
  if (!data.is_array()) Unexpected("/v1/models has no array \"data\"");
  for (const Json& entry : data) {
    const Json id = At(entry, "id");
    if (!id.is_string()) continue;
    const Json meta = At(entry, "meta");  // llama-server
    models.push_back(
        {.name = id.get<std::string>(),
         .max_length = std::max(Positive(At(entry, "max_model_len")), Positive(At(meta, "n_ctx"))),
         .vocab = Positive(At(meta, "n_vocab"))});
  }
  return models;
}

ServedModel Choose(const std::vector<ServedModel>& models, const std::string& name) {
  std::vector<std::string> names;
  for (const ServedModel& model : models) {
    if (model.name == name || (name.empty() && models.size() == 1)) return model;
    names.push_back(model.name);
  }
  throw Error(ErrorCode::kMismatch,
              fmt::format("the server serves {}; choose one with --served-model NAME",
                          names.empty() ? "no model" : fmt::format("{}", fmt::join(names, ", "))));
}

}  // namespace

const char* Name(ServerWay way) { return way == ServerWay::kEcho ? "echo" : "next-token"; }

ModelServer::ModelServer(const std::string& url, int64_t timeout_seconds, int64_t vocab)
    : http_(url, KeyOfEnvironment(), timeout_seconds), vocab_(vocab) {}

std::string ModelServer::Refusal(const HttpAnswer& answer, std::size_t tokens) const {
  std::string text = fmt::format("{}: status {}", http_.url(), answer.status);
  if (tokens > 0) text += fmt::format(" for a prompt of {} tokens", tokens);
  text += ": " + MessageOf(answer.body);
  if (answer.status == 401 || answer.status == 403) {
    text += "; the key is read from OPENAI_API_KEY";
  } else if (tokens > 2 && model_.max_length > 0) {
    text += fmt::format("; it says that it takes {} tokens, --length asks for fewer",
                        model_.max_length);
  }
  return text;
}

Json ModelServer::Get(const std::string& path) const {
  const HttpAnswer answer = http_.Send(path, "", kMostBytes);
  if (answer.status != 200) throw Error(ErrorCode::kIo, Refusal(answer, 0));
  Json json = Json::parse(answer.body, nullptr, false);
  if (json.is_discarded()) Unexpected(path + " is no JSON");
  return json;
}

Json ModelServer::Complete(std::span<const int32_t> prompt, bool echo) const {
  // Ids as ids: no text, so no BOS and no other merges. What a server does not know it ignores:
  // return_tokens_as_token_ids is vLLM's, cache_prompt llama-server's.
  const Json request = {{"model", model_.name},
                        {"prompt", std::vector<int32_t>(prompt.begin(), prompt.end())},
                        {"max_tokens", 1},
                        {"temperature", 0},
                        {"echo", echo},
                        {"logprobs", echo ? 1 : kTops},
                        {"return_tokens_as_token_ids", true},
                        {"cache_prompt", true}};
  const auto most = kMostBytes + kMostTokenBytes * static_cast<int64_t>(prompt.size());
  const HttpAnswer answer = http_.Send("/v1/completions", request.dump(), most);
  // A server without echo may say so.
  if (echo && answer.status >= 400 && MessageOf(answer.body).find("echo") != std::string::npos) {
    return Json::object();
  }
  if (answer.status != 200) throw Error(ErrorCode::kIo, Refusal(answer, prompt.size()));
  Json json = Json::parse(answer.body, nullptr, false);
  if (json.is_discarded()) Unexpected("no JSON, or JSON that ends early");
  CheckUsage(json, prompt.size());
  return json;
}

void ModelServer::Open(const std::string& name, std::span<const int32_t> two_tokens) {
  model_ = Choose(ModelsOf(Get("/v1/models")), name);
  const Json log_probs = LogProbs(Complete(two_tokens, true));
  const Json tokens = At(log_probs, "token_logprobs");
  way_ = tokens.is_array() && tokens.size() > 1 ? ServerWay::kEcho : ServerWay::kNext;
}

std::vector<float> ModelServer::Echo(std::span<const int32_t> prompt) const {
  const Json log_probs = LogProbs(Complete(prompt, true));
  const Json values = At(log_probs, "token_logprobs");
  const Json tokens = At(log_probs, "tokens");
  // The prompt's, and that of the token behind it.
  if (!values.is_array() || values.size() < prompt.size() || values.size() > prompt.size() + 1) {
    Unexpected(fmt::format("{} log-probabilities for a prompt of {} tokens",
                           values.is_array() ? values.size() : 0, prompt.size()));
  }
  std::vector<float> echoed;
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    echoed.push_back(LogProb(values[i], fmt::format("token {} of the prompt", i)));
    if (!tokens.is_array() || i >= tokens.size() || !tokens[i].is_string()) continue;
    const int64_t id = WrittenId(tokens[i].get<std::string>());
    if (id < 0 || id == prompt[i]) continue;
    throw Error(ErrorCode::kMismatch, fmt::format("token {} of the prompt is {}, and the server "
                                                  "read {}",
                                                  i, prompt[i], id));
  }
  return echoed;
}

NextTokens ModelServer::Next(std::span<const int32_t> prompt) const {
  const Json log_probs = LogProbs(Complete(prompt, false));
  NextTokens next;
  const auto add = [&](int64_t id, const Json& value) {
    next.ids.push_back(CheckedId(id, vocab_));
    next.log_probs.push_back(LogProb(value, fmt::format("token {}", id)));
  };
  const Json tops = At(First(At(log_probs, "content")), "top_logprobs");  // llama-server
  if (tops.is_array()) {
    for (const Json& top : tops) {
      const Json id = At(top, "id");
      if (!id.is_number_integer()) Unexpected("a token without its id");
      add(id.get<int64_t>(), At(top, "logprob"));
    }
  }
  const Json named = First(At(log_probs, "top_logprobs"));  // vLLM
  if (named.is_object()) {
    for (const auto& [text, value] : named.items()) {
      if (const int64_t id = WrittenId(text); id >= 0) add(id, value);
    }
  }
  if (next.ids.size() > 1) return next;
  Unexpected(
      "neither log-probabilities of the prompt (echo, logprobs) nor token ids with those of the "
      "next token; vLLM and llama-server give one of them");
}

}  // namespace ropewalk::cli
