// Attention of one tile of queries. Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_KERNEL_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_KERNEL_FORWARD_INL_H_
#undef ROPEWALK_ATTENTION_KERNEL_FORWARD_INL_H_
#else
#define ROPEWALK_ATTENTION_KERNEL_FORWARD_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "src/attention/kernel/softmax-inl.h"
#include "src/attention/terms/visit-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

template <class Term>
class Forward {
 public:
  explicit Forward(const AttentionTile& t)
      : t_(t), tile_(t), scores_(tile_), softmax_(tile_, scores_), term_(tile_) {}

  void Run() {
    if (t_.pair_tiles) ConfigurePairTiles(kPairTileRows);
    if (std::is_same_v<Term, NoTerm> && t_.pair_tiles && t_.soft_cap == 0) tile_.unit = kLog2E;
    scores_.ScaleQueries();
    term_.Begin();
    scores_.FinishQueries();
    softmax_.Begin();
    const int64_t first = t_.seen_begin[0];
    const int64_t end = std::min(t_.key_end, t_.seen_end[t_.tokens - 1]);
    const int64_t begin = std::max(t_.key_begin, first / kTileKeys * kTileKeys);
    const int64_t tiles = begin < end ? (end - begin + kTileKeys - 1) / kTileKeys : 0;
    for (int64_t i = 0; i < tiles; ++i) {
      tile_.begin = begin + (Term::kDescends ? tiles - 1 - i : i) * kTileKeys;
      tile_.end = std::min(tile_.begin + kTileKeys, end);
      if (scores_.ClipTile()) RunTile();
    }
    term_.End();
    if (t_.pair_tiles) ReleasePairTiles();
    if (t_.partial != nullptr) {
      softmax_.WritePartial();
    } else {
      softmax_.WriteOut();
    }
  }

 private:
  void RunTile() {
    scores_.MultiplyKeys();
    term_.AddTo(tile_.scores);
    softmax_.Run(term_);
    term_.AddValueRows();
  }

  const AttentionTile& t_;
  Tile tile_;
  Scores scores_;
  Softmax softmax_;
  Term term_;
};

void AttendTileT(const AttentionTile& tile) {
  VisitTerm(tile.form, [&]<class Term>(TermType<Term>) { Forward<Term>(tile).Run(); });
}

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
