// Which tokens are scored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "ropewalk/base/error.h"
#include "tests/eval/tiny_model.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace {

using test::MessageOf;
using test::RandomText;
using ::testing::AllOf;
using ::testing::HasSubstr;

Protocol Aligned(int64_t k, int64_t anchors, uint64_t seed, bool bos) {
  Protocol p = Protocol::Parse("aligned:" + std::to_string(k));
  p.anchors = anchors;
  p.seed = seed;
  p.bos = bos;
  return p;
}

TEST(Protocol, ParsesItsNames) {
  for (const char* name :
       {"aligned:1", "aligned:128", "windows", "half", "sliding:1", "sliding:512"}) {
    EXPECT_EQ(Protocol::Parse(name).Name(), name);
  }
  EXPECT_EQ(Protocol::Parse("aligned").Name(), "aligned:128");
  for (const char* bad : {"", "aligned:", "aligned:0", "aligned:-1", "aligned:1x", "Windows",
                          "aligned:99999999999999999999", "sliding", "sliding:", "sliding:0",
                          "sliding:-1", "sliding:1x", "sliding:99999999999999999999"}) {
    EXPECT_THAT(MessageOf([&] { Protocol::Parse(bad); }),
                AllOf(HasSubstr("aligned:K"), HasSubstr("sliding:STRIDE")))
        << bad;
  }
}

TEST(Windows, MoreAnchorsThanNumbersHoldAreTooMany) {
  const TokenText text = RandomText(5000, 1);
  for (const int64_t anchors : {int64_t{1} << 62, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(MessageOf([&] { MakeWindows(text, Aligned(16, anchors, 3, false), 64, 64, {}); }),
                HasSubstr("the text is too short"));
  }
}

TEST(Windows, AlignedScoresTheSameTokensAtEveryLength) {
  const TokenText text = RandomText(5000, 1);
  for (const bool bos : {false, true}) {
    const Protocol p = Aligned(16, 8, 3, bos);
    const auto longest = MakeWindows(text, p, 1024, 1024, 256);
    ASSERT_EQ(longest.size(), 8u);
    for (const int64_t length : {17, 64, 255, 256, 257, 1023}) {
      const auto windows = MakeWindows(text, p, length, 1024, 256);
      ASSERT_EQ(windows.size(), longest.size());
      for (size_t i = 0; i < windows.size(); ++i) {
        ASSERT_EQ(static_cast<int64_t>(windows[i].ids.size()), length);
        EXPECT_EQ(windows[i].score_begin, length - 16);
        EXPECT_EQ(windows[i].ids[0] == 256, bos);
        // Everything but the BOS is the text right up to the same end.
        EXPECT_TRUE(std::equal(windows[i].ids.begin() + (bos ? 1 : 0), windows[i].ids.end(),
                               longest[i].ids.end() - (length - (bos ? 1 : 0))));
        EXPECT_EQ(windows[i].ids.back(),
                  text.ids[windows[i].text_begin + length - (bos ? 1 : 0) - 1]);
      }
    }
  }
}

TEST(Windows, AnchorsAreSpreadAndDoNotOverlap) {
  const TokenText text = RandomText(5000, 1);
  const auto windows = MakeWindows(text, Aligned(16, 8, 3, false), 1024, 1024, {});
  std::vector<int64_t> ends;
  for (const EvalWindow& w : windows) ends.push_back(w.text_begin + 1024);
  for (size_t i = 0; i < ends.size(); ++i) {
    EXPECT_GE(ends[i], 1024);
    EXPECT_LE(ends[i], 5000);
    if (i > 0) {
      EXPECT_GE(ends[i], ends[i - 1] + 16);
    }
    // One in each eighth of the room.
    const int64_t room = 5000 - 1024 - 7 * 16 + 1;
    const int64_t offset = ends[i] - 1024 - static_cast<int64_t>(i) * 16;
    EXPECT_GE(offset, room * static_cast<int64_t>(i) / 8);
    EXPECT_LE(offset, room * static_cast<int64_t>(i + 1) / 8);
  }
  const auto again = MakeWindows(text, Aligned(16, 8, 3, false), 1024, 1024, {});
  const auto other = MakeWindows(text, Aligned(16, 8, 4, false), 1024, 1024, {});
  EXPECT_EQ(again[3].text_begin, windows[3].text_begin);
  EXPECT_NE(other[3].text_begin, windows[3].text_begin);
}

TEST(Windows, AlignedTextThatIsJustLongEnough) {
  for (const bool bos : {false, true}) {
    const int64_t needed = 256 - (bos ? 1 : 0) + 3 * 16;
    const Protocol p = Aligned(16, 4, 1, bos);
    EXPECT_EQ(MakeWindows(RandomText(needed, 1), p, 256, 256, 256).size(), 4u);
    const TokenText text = RandomText(needed - 1, 1);
    EXPECT_THAT(MessageOf([&] { MakeWindows(text, p, 256, 256, 256); }),
                AllOf(HasSubstr("needs " + std::to_string(needed) + " tokens"),
                      HasSubstr("has " + std::to_string(needed - 1)), HasSubstr("up to 255"),
                      HasSubstr("--anchors 3")));
    // What the message offers works.
    EXPECT_EQ(MakeWindows(text, p, 255, 255, 256).size(), 4u);
    EXPECT_EQ(MakeWindows(text, Aligned(16, 3, 1, bos), 256, 256, 256).size(), 3u);
  }
}

TEST(Windows, RefusesWhatCannotBeScored) {
  const TokenText text = RandomText(100, 1);
  EXPECT_THAT(MessageOf([&] { MakeWindows(text, Aligned(16, 1, 1, false), 16, 64, {}); }),
              HasSubstr("smaller K, such as aligned:8"));
  EXPECT_THAT(MessageOf([&] { MakeWindows(text, Aligned(16, 1, 1, true), 32, 64, {}); }),
              HasSubstr("--no-bos"));
  EXPECT_THAT(MessageOf([&] { MakeWindows(text, Protocol::Parse("windows"), 101, 101, {}); }),
              AllOf(HasSubstr("needs 101 tokens"), HasSubstr("has 100"), HasSubstr("up to 100")));
}

TEST(Windows, WindowsAndHalf) {
  const TokenText text = RandomText(1000, 1);
  Protocol p = Protocol::Parse("windows");
  auto windows = MakeWindows(text, p, 64, 64, {});
  ASSERT_EQ(windows.size(), 15u);  // 15 * 64 = 960
  EXPECT_EQ(windows[14].text_begin, 14 * 64);
  EXPECT_EQ(windows[14].score_begin, 1);
  p.bos = true;
  windows = MakeWindows(text, p, 64, 64, 256);
  ASSERT_EQ(windows.size(), 15u);  // 15 * 63 = 945
  EXPECT_EQ(windows[14].text_begin, 14 * 63);
  EXPECT_EQ(windows[14].ids[0], 256);
  EXPECT_EQ(windows[14].ids[1], text.ids[14 * 63]);
  p.anchors = 4;
  EXPECT_EQ(MakeWindows(text, p, 64, 64, 256).size(), 4u);
  // llama.cpp takes logits n/2 .. n-2 of a chunk, which predict tokens n/2 + 1 .. n - 1.
  windows = MakeWindows(text, Protocol::Parse("half"), 64, 64, {});
  EXPECT_EQ(windows[0].score_begin, 33);
}

// Hugging Face's guide ("Perplexity of fixed-length models"), typed again from its description:
//   for begin in range(0, seq_len, stride): end = min(begin + max_length, seq_len);
//   the last end - prev_end tokens of [begin, end) are targets; break at end == seq_len.
struct Scored {
  int64_t token, context;  // of the text; tokens in front of it in its window
  friend bool operator==(const Scored&, const Scored&) = default;
};
std::vector<Scored> ReferenceSliding(int64_t tokens, int64_t max_length, int64_t stride) {
  std::vector<Scored> scored;
  int64_t previous_end = 0;
  for (int64_t begin = 0; begin < tokens; begin += stride) {
    const int64_t end = std::min(begin + max_length, tokens);
    for (int64_t t = previous_end; t < end; ++t) {
      if (t > begin) scored.push_back({t, t - begin});  // the shift drops a window's first token
    }
    previous_end = end;
    if (end == tokens) break;
  }
  return scored;
}

TEST(Windows, SlidingScoresWhatTheGuideScores) {
  for (const int64_t tokens : {64, 65, 79, 80, 81, 95, 96, 1000}) {
    const TokenText text = RandomText(tokens, 2);
    for (const int64_t stride : {1, 7, 16, 32, 63}) {
      const Protocol p = Protocol::Parse("sliding:" + std::to_string(stride));
      std::vector<Scored> scored;
      for (const EvalWindow& w : MakeWindows(text, p, 64, 64, {})) {
        const auto size = static_cast<int64_t>(w.ids.size());
        ASSERT_LE(size, 64);
        ASSERT_TRUE(std::equal(w.ids.begin(), w.ids.end(), text.ids.begin() + w.text_begin));
        for (int64_t i = w.score_begin; i < size; ++i) scored.push_back({w.text_begin + i, i});
      }
      EXPECT_EQ(scored, ReferenceSliding(tokens, 64, stride)) << tokens << " " << stride;
    }
  }
}

TEST(Windows, SlidingWithBosScoresTheFirstTokenToo) {
  const TokenText text = RandomText(100, 2);
  Protocol p = Protocol::Parse("sliding:16");
  p.bos = true;
  int64_t next = 0;
  for (const EvalWindow& w : MakeWindows(text, p, 64, 64, 256)) {
    EXPECT_EQ(w.ids[0], 256);
    for (size_t i = 1; i < w.ids.size(); ++i) EXPECT_EQ(w.ids[i], text.ids[w.text_begin + i - 1]);
    EXPECT_EQ(w.text_begin + w.score_begin - 1, next);
    next = w.text_begin + static_cast<int64_t>(w.ids.size()) - 1;
    if (w.text_begin > 0) {
      EXPECT_GE(w.score_begin, 64 - 16);
    }
  }
  EXPECT_EQ(next, 100);
  p.anchors = 2;
  EXPECT_EQ(MakeWindows(text, p, 64, 64, 256).size(), 2u);
}

TEST(Windows, SlidingRefusesStridesThatLeaveNothingInFront) {
  const TokenText text = RandomText(100, 2);
  for (const char* name : {"sliding:64", "sliding:65"}) {
    EXPECT_THAT(MessageOf([&] { MakeWindows(text, Protocol::Parse(name), 64, 64, {}); }),
                AllOf(HasSubstr("from 1 to 63"), HasSubstr("--protocol windows")));
  }
  EXPECT_THAT(MessageOf([&] { MakeWindows(text, Protocol::Parse("sliding:8"), 101, 101, {}); }),
              HasSubstr("too short"));
}

}  // namespace
}  // namespace ropewalk
