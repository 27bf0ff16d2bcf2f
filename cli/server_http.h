// HTTP requests to one server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace ropewalk::cli {

struct HttpAnswer {
  int status = 0;  // 200, or what the server refused with
  std::string body;
};

class HttpClient {
 public:
  // `url`: [http[s]://]host[:port][/path], of which /v1 at the end is left out. UsageError for
  // others. With a `key` requests carry it as a bearer token; redirects are not followed.
  HttpClient(const std::string& url, const std::string& key, int64_t timeout_seconds);
  ~HttpClient();

  const std::string& url() const { return url_; }  // as requests go to it

  // `path` as "/v1/models". A body makes it a POST of JSON. Throws Error(kIo) where nothing
  // answers, after the timeout, and for an answer of more than `most_bytes`.
  HttpAnswer Send(const std::string& path, const std::string& body, int64_t most_bytes) const;

 private:
  struct Connection;
  std::unique_ptr<Connection> connection_;
  std::string url_, prefix_, key_;
  [[maybe_unused]] int64_t timeout_seconds_ = 0;  // without an HTTP client
};

}  // namespace ropewalk::cli
