#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define ROPEWALK_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ROPEWALK_ADDRESS_SANITIZER
#endif
#endif

namespace ropewalk {
namespace {

using ::testing::HasSubstr;

class AttentionErrors : public ::testing::Test {
 protected:
  AttentionErrors() : cache_(2, 16, 10), data_(4096, 0.5f), out_(4096) {
    cache_.Append(View(data_, 5, 2), View(data_, 5, 2));
    args_.q = View(data_, 3, 4);
    args_.out = View(out_, 3, 4);
    args_.cache = &cache_;
    args_.scale = 0.25f;
  }
  static TensorView View(std::vector<float>& data, int64_t tokens, int64_t heads) {
    return TensorView::Of(data.data(), {tokens, heads, 16});
  }
  static void ExpectRefusal(const std::function<void()>& call, const std::string& part) {
    try {
      call();
      ADD_FAILURE() << "no error; expected one that says " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(e.what(), HasSubstr(part));
    }
  }
  void Refused(const std::string& part) {
    ExpectRefusal([this] { Attention(args_); }, part);
  }

  KvCache cache_;
  std::vector<float> data_, out_;
  AttentionArgs args_;
};

TEST_F(AttentionErrors, TheFixtureItselfIsLegal) { EXPECT_NO_THROW(Attention(args_)); }

TEST_F(AttentionErrors, NoQueriesIsLegal) {
  args_.q.shape[0] = args_.out.shape[0] = 0;
  args_.q.data = args_.out.data = nullptr;
  EXPECT_NO_THROW(Attention(args_));
}

TEST_F(AttentionErrors, NullCache) {
  args_.cache = nullptr;
  Refused("cache");
}
TEST_F(AttentionErrors, WrongType) {
  args_.q.dtype = DType::kF16;
  Refused("got f16");
}
TEST_F(AttentionErrors, WrongRank) {
  args_.q.rank = 2;
  Refused("q: expected float32 [tokens, heads, 16]");
}
TEST_F(AttentionErrors, WrongHeadDim) {
  args_.q = TensorView::Of(data_.data(), {3, 4, 8});
  Refused("[3, 4, 8]");
}
TEST_F(AttentionErrors, HeadNotContiguous) {
  args_.q.strides[2] = 2;
  Refused("last stride of 1");
}
TEST_F(AttentionErrors, HeadsNotAMultiple) {
  args_.q = View(data_, 3, 3);
  args_.out = View(out_, 3, 3);
  Refused("multiple of the cache's 2 key heads, got 3");
}
TEST_F(AttentionErrors, OutOfAnotherShape) {
  args_.out = View(out_, 2, 4);
  Refused("out: expected the shape of q, [3, 4, 16], got [2, 4, 16]");
}
TEST_F(AttentionErrors, MoreQueriesThanKeys) {
  args_.q = View(data_, 6, 4);
  args_.out = View(out_, 6, 4);
  Refused("has 6 tokens but the cache holds 5");
}
TEST_F(AttentionErrors, ScaleNotANumber) {
  args_.scale = NAN;
  Refused("scale");
}
TEST_F(AttentionErrors, NegativeWindow) {
  args_.window_tokens = -1;
  Refused("window_tokens");
}
TEST_F(AttentionErrors, NullData) {
  args_.out.data = nullptr;
  Refused("null");
}
TEST_F(AttentionErrors, PartialOverlap) {
  args_.out.data = data_.data() + 64;
  Refused("overlaps");
}

TEST_F(AttentionErrors, CacheFull) {
  ExpectRefusal([this] { cache_.Append(View(data_, 6, 2), View(data_, 6, 2)); },
                "holds 5 of 10 tokens and cannot take 6");
  EXPECT_EQ(cache_.tokens(), 5);
  EXPECT_NO_THROW(cache_.Append(View(data_, 5, 2), View(data_, 5, 2)));
  ExpectRefusal([this] { cache_.Append(View(data_, 1, 2), View(data_, 1, 2)); }, "10 of 10");
}
TEST_F(AttentionErrors, KeysAndValuesDiffer) {
  ExpectRefusal([this] { cache_.Append(View(data_, 2, 2), View(data_, 3, 2)); }, "v: expected");
  ExpectRefusal([this] { cache_.Append(View(data_, 2, 3), View(data_, 2, 2)); }, "k: expected");
}
TEST_F(AttentionErrors, TruncateForward) {
  ExpectRefusal([this] { cache_.Truncate(6); }, "0 to 5");
  ExpectRefusal([this] { cache_.Truncate(-1); }, "got -1");
}
TEST_F(AttentionErrors, CacheOfAbsurdShape) {
  ExpectRefusal([] { KvCache(0, 16, 10); }, "kv_heads");
  ExpectRefusal([] { KvCache(2, 0, 10); }, "head_dim");
  ExpectRefusal([] { KvCache(2, 16, -1); }, "capacity");
  ExpectRefusal([] { KvCache(2, 16, int64_t{1} << 40); }, "capacity");
  ExpectRefusal([] { KvCache(32769, 16, 10); }, "kv_heads");
}
TEST_F(AttentionErrors, NoMemory) {
#ifdef ROPEWALK_ADDRESS_SANITIZER
  GTEST_SKIP() << "the address sanitizer ends the program where malloc would fail";
#endif
  ExpectRefusal([] { KvCache(32768, 32768, int64_t{1} << 30); }, "no memory for");
}

}  // namespace
}  // namespace ropewalk
