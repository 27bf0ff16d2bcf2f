// What a call that has to be refused says.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "ropewalk/base/error.h"

namespace ropewalk::test {

// The text of the Error that `call` throws; "no error" when it throws none.
template <class Call>
std::string MessageOf(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// The same, of an Error that has to be thrown and to have this code.
template <class Call>
std::string MessageOf(ErrorCode code, Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "no error";
}

}  // namespace ropewalk::test
