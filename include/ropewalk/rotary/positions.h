// The positions of the tokens of a sequence of text, images and videos, by the rules of models and
// of Su's articles; for Positions::Each with several axes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/rotary/frequencies.h"

namespace ropewalk {

// In all rules a text token has the same position n on every axis, so that text alone is plain
// RoPE. They differ in the positions of the patches of an image and of the text after it. Below, s
// is the position that a text token in place of the image would have. A grid of height x width
// patches is first merged by spatial_merge in both directions, which gives rows x columns tokens in
// row-major order, frame by frame.
enum class PositionRule : uint8_t {
  // One axis: every token, patches too, has the next position (LLaVA, most models of 2023).
  kFlat,
  // Axes t, h, w: patch (t, h, w) at (s + t, s + h, s + w); text continues at the largest of all
  // plus 1. Qwen2-VL, arXiv 2409.12191. Text of 3, an image of 4 x 4 patches merged by 2, text of
  // 2:
  //   t  0 1 2   3 3 3 3   5 6
  //   h  0 1 2   3 3 4 4   5 6
  //   w  0 1 2   3 4 3 4   5 6
  kQwen2Vl,
  // The same with time in seconds: t is floor(frame * seconds_per_grid * tokens_per_second), in
  // float32 as there. Qwen2.5-VL, arXiv 2502.13923. Text of 2, a video of 3 x 2 x 4 at 1 second per
  // grid and 2 tokens per second, text of 1:
  //   t  0 1   2 2 4 4 6 6   7
  //   h  0 1   2 2 2 2 2 2   7
  //   w  0 1   2 3 2 3 2 3   7
  kQwen25Vl,
  // A video is a sequence of images, each after the text tokens of its timestamp, so that t = s for
  // all patches of a frame. Qwen3-VL. A video of two frames of 2 x 4, two timestamp tokens each,
  // text of 1:
  //   t  0 1   2 2   4 5   6 6   8
  //   h  0 1   2 2   4 5   6 6   8
  //   w  0 1   2 3   4 5   6 7   8
  kQwen3Vl,
  // As kQwen2Vl, and frames of a video are merged by temporal_merge. Ernie 4.5-VL. Text of 1, a
  // video of 4 x 2 x 4 with temporal_merge 2, text of 1:
  //   t  0   1 1 2 2   3
  //   h  0   1 1 1 1   3
  //   w  0   1 2 1 2   3
  kErnie,
  // Axes p, w, h, t: p counts tokens; a patch has its column, its row and the number of its image
  // (from 0). A row ends in a newline token, at the column after the last. XD-RoPE of HunYuan-VL:
  // transformers 5 (models/hunyuan_vl, get_rope_index), vLLM until 2026 (hunyuan_vision.py) and
  // llama.cpp (tools/mtmd, MTMD_POS_TYPE_HUNYUANVL) agree on it. The begin and the end token of an
  // image are text. Text of 2, an image of 2 x 4 patches merged by 2 (one row), text of 1:
  //   p  0 1   2 3 4   5
  //   w  0 1   0 1 2   5
  //   h  0 1   0 0 0   5
  //   t  0 1   0 0 0   5
  kXdRope,
  // Axes x, y: the row and the column of a patch, in the articles' order. An image of w x h patches
  // takes as many positions as w h text tokens, and its patches are spread evenly between the text
  // before and after: the patch of row i and column j, from 1, is at
  // (s - 1 + i (wh+1)/(h+1), s - 1 + j (wh+1)/(w+1)), text continues at s + wh. RoPE-Tie, Su 2024,
  // kexue.fm/archives/10040, in its form for fractional positions, which archives/10352 calls
  // RoPE-Tie. (In whole numbers it takes steps of w+1 and h+1 and (w+1)(h+1) - 1 positions.) Text
  // of 2, an image of 2 x 1 (w x h), text of 1, in halves (denominator 2; wh+1 = 3, so 3/2 and 1):
  //   x  0 2   5 5   8
  //   y  0 2   4 6   8
  kRopeTie,
  // Axes x, y and as many positions as above, but patches are 1 apart and centred: the patch of row
  // i and column j, from 1, is at (s - 1 + (wh-h)/2 + i, s - 1 + (wh-w)/2 + j), text continues at
  // s + wh. RoPE-Tie-v2, or RoPE-TV, Su 2024, kexue.fm/archives/10352. Text of 1, an image of
  // 3 x 2, text of 1, in halves:
  //   x  0   6 6 6 8 8 8        14
  //   y  0   5 7 9 5 7 9        14
  kRopeTv
};

struct PositionRuleSpec {
  PositionRule rule;  // required
  int64_t spatial_merge = 2;
  int64_t temporal_merge = 2;    // kErnie: frames of a video (a single frame stays one)
  double tokens_per_second = 2;  // kQwen25Vl
};

struct TokenPositions {
  int64_t axes = 1;
  int64_t tokens = 0;
  std::vector<int64_t> values;  // [axes, tokens], in units of 1 / denominator
  int64_t denominator = 1;      // 1 except for the articles' rules
  int64_t next = 0;             // position of the next text token, in the same units
};

// Builds the positions of one sequence from its first token to its last.
class PositionBuilder {
 public:
  // `start`: position of the first token. Throws Error for a merge below 1.
  explicit PositionBuilder(const PositionRuleSpec& spec, int64_t start = 0);

  void Text(int64_t tokens);
  // height x width in patches before merging, multiples of spatial_merge.
  void Image(int64_t height, int64_t width);
  // `frames` in temporal patches, as the model's processor counts them. seconds_per_grid is read by
  // kQwen25Vl alone. Throws Error for kQwen3Vl (see TimestampedVideo), kXdRope and the articles'
  // rules, which have no time.
  void Video(int64_t frames, int64_t height, int64_t width, double seconds_per_grid = 1);
  // kQwen3Vl: frame i after timestamp_tokens[i] tokens of text.
  void TimestampedVideo(std::span<const int64_t> timestamp_tokens, int64_t height, int64_t width);

  TokenPositions Build() const;
  int64_t axes() const { return axes_; }

 private:
  struct Grid {
    int64_t frames, rows, columns;
  };
  Grid Merge(int64_t frames, int64_t height, int64_t width) const;
  void Add(const Grid& grid, double seconds_per_grid);
  void AddXd(const Grid& grid);
  void AddArticle(const Grid& grid);
  void NeedDenominator(int64_t denominator);
  // add(), or nothing of it where it throws.
  template <class F>
  void AddWhole(F add);

  PositionRuleSpec spec_;
  int64_t axes_;
  int64_t denominator_ = 1;
  int64_t next_;
  int64_t images_ = 0;
  std::vector<int64_t> values_;  // [tokens, axes]
};

// Frequencies for positions in units of 1 / denominator: `frequencies` divided by it, exactly.
Frequencies PerUnit(const Frequencies& frequencies, int64_t denominator);

// The rows and columns of the patches of a vision tower with 2-D rotary (axes h, w), in the order
// of Qwen2-VL and its successors: merge x merge blocks one after the other. 2 x 4 patches, merge 2:
//   h  0 0 1 1 0 0 1 1
//   w  0 1 0 1 2 3 2 3
TokenPositions VisionTowerPositions(int64_t frames, int64_t height, int64_t width, int64_t merge);

}  // namespace ropewalk
