// A server with OpenAI's completions API, as vLLM and llama-server have it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/server_http.h"

namespace ropewalk::cli {

// How a server tells log-probabilities.
//   kEcho  of every token of a prompt (vLLM: echo and logprobs)
//   kNext  of the most probable tokens behind a prompt alone (llama-server, which has no echo)
enum class ServerWay : uint8_t { kEcho, kNext };
const char* Name(ServerWay way);  // "echo", "next-token"

struct ServedModel {
  std::string name;
  int64_t max_length = 0;  // tokens of prompt and answer; 0: it does not say
  int64_t vocab = 0;       // 0: it does not say
};

// The most probable tokens behind a prompt.
struct NextTokens {
  std::vector<int32_t> ids;
  std::vector<float> log_probs;  // nats
};

// Each request throws Error: kIo where the server does not answer or refuses, kInvalidFile for an
// answer that is not what was asked for, kMismatch for one about other tokens.
class ModelServer {
 public:
  // `vocab` is that of the model here: ids of the server are below it.
  ModelServer(const std::string& url, int64_t timeout_seconds, int64_t vocab);

  const std::string& url() const { return http_.url(); }
  const ServedModel& model() const { return model_; }
  ServerWay way() const { return way_; }

  // Chooses the model `name`, or without a name the only one, and finds out how it tells
  // log-probabilities, by a prompt of two tokens.
  void Open(const std::string& name, std::span<const int32_t> two_tokens);

  // Log-probabilities of prompt[1], prompt[2], ... (kEcho).
  std::vector<float> Echo(std::span<const int32_t> prompt) const;
  NextTokens Next(std::span<const int32_t> prompt) const;  // ten (kNext)

 private:
  nlohmann::ordered_json Complete(std::span<const int32_t> prompt, bool echo) const;
  nlohmann::ordered_json Get(const std::string& path) const;
  std::string Refusal(const HttpAnswer& answer, std::size_t tokens) const;

  HttpClient http_;
  int64_t vocab_ = 0;
  ServedModel model_;
  ServerWay way_ = ServerWay::kEcho;
};

}  // namespace ropewalk::cli
