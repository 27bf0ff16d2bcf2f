// Every function of libropewalk.so, called by eight threads at the same time: what they share.
#ifndef TESTS_CAPI_AT_ONCE_H_
#define TESTS_CAPI_AT_ONCE_H_

#include <barrier>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "ropewalk/ropewalk_attention.h"

namespace ropewalk::at_once {

inline constexpr int kCallers = 8;

// One thread, which makes the same calls as the others, with numbers of its own. What they give is
// kept byte for byte.
class Caller {
 public:
  // `meeting`: where the callers wait for each other before every call; nullptr: they do not.
  Caller(int index, std::barrier<>* meeting) : index_(index), meeting_(meeting) {}

  int index() const { return index_; }
  const std::string& kept() const { return kept_; }
  const std::string& broken() const { return broken_; }  // what was expected and is not so
  // How often each function was called after a meeting.
  const std::map<std::string, int>& calls() const { return calls_; }

  template <class Result, class... Parameters, class... Arguments>
  Result Call(const char* name, Result (*function)(Parameters...), Arguments... arguments) {
    if (meeting_ != nullptr) {
      ++calls_[name];
      meeting_->arrive_and_wait();
    }
    if constexpr (std::is_void_v<Result>) {
      function(arguments...);
    } else {
      const Result result = function(arguments...);
      KeepResult(result);
      return result;
    }
  }

  template <class T>
  void Keep(const T* values, int64_t count) {
    static_assert(std::is_arithmetic_v<T>);
    kept_.append(reinterpret_cast<const char*>(values), sizeof(T) * static_cast<size_t>(count));
  }
  template <class T>
  void Keep(const std::vector<T>& values) {
    Keep(values.data(), static_cast<int64_t>(values.size()));
  }
  void Keep(const std::string& text) { kept_ += text; }
  void Expect(bool holds, const char* what);

  // Numbers of this thread alone, from -1 to 1.
  std::vector<float> Numbers(int64_t count, int seed) const;

 private:
  void KeepResult(const char* text) { Keep(std::string(text)); }
  void KeepResult(ropewalk_status status);  // with the message of a failure

  const int index_;
  std::barrier<>* const meeting_;
  std::map<std::string, int> calls_;
  std::string kept_, broken_;
};

// The name under which a call is counted is that of the function which is called.
#define CALL(function, ...) caller.Call(#function, function __VA_OPT__(, ) __VA_ARGS__)
// Of a function that returns a status, which has to be ROPEWALK_OK.
#define WORKS(function, ...) \
  caller.Expect(CALL(function __VA_OPT__(, ) __VA_ARGS__) == ROPEWALK_OK, #function " works")

// A struct of the C interface with its size in it.
template <class T>
T Sized() {
  T t{};
  t.size = sizeof t;
  return t;
}

struct Case {
  std::string name;
  std::function<void(Caller&)> run;
};
// The handles that all callers read are made here and live as long as the cases.
std::vector<Case> RotaryCases();     // at_once_rotary.cc
std::vector<Case> RotateCases();     // at_once_rotate.cc
std::vector<Case> AttentionCases();  // at_once_attention.cc

}  // namespace ropewalk::at_once

#endif  // TESTS_CAPI_AT_ONCE_H_
