// The kernel of one job: the query heads that share a key head, for a tile of consecutive tokens,
// against a span of keys.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ropewalk/attention/attention.h"
#include "src/attention/form.h"
#include "src/attention/kv_head.h"
#include "src/attention/load_rotation.h"

namespace ropewalk {

// Keys stand in blocks of 64 tokens along the vector, so that q k^T needs no transposition; values
// in rows (kv_head.h).
struct AttentionAccess {
  static constexpr int64_t kBlock = 64;
  static constexpr int64_t kMaxLanes = 16;  // float32 lanes of the widest vector that is used

  // A row of a query, key or value, padded to whole vectors.
  static constexpr int64_t RowStride(int64_t dim) {
    return (dim + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
  }
  // Values are cut into panels of up to 64 dims, as even as whole vectors allow.
  static constexpr int64_t PanelWidth(int64_t value_dim) {
    const int64_t vectors = RowStride(value_dim) / kMaxLanes, panels = (vectors + 3) / 4;
    return (vectors + panels - 1) / panels * kMaxLanes;
  }
  static const internal::ContentColumns* Columns(const PreparedForm& f) { return f.columns_.get(); }
  // Of one token and head.
  static constexpr int64_t KeyBytes(KvType type, int64_t head_dim) {
    if (type == KvType::kF32) return 4 * head_dim;
    return type == KvType::kBf16 ? (head_dim + 1) / 2 * 4 : head_dim;
  }
  // Of `tokens` tokens of a head.
  static constexpr int64_t ValueBytes(KvType type, int64_t value_dim, int64_t tokens) {
    if (type == KvType::kQ8_0) return value_dim * tokens;
    return 4 * RowStride(value_dim) * (type == KvType::kBf16 ? (tokens + 1) / 2 : tokens);
  }
  // Of a row of AttentionSums.
  static constexpr int64_t RecordOf(int64_t value_dim) { return RowStride(value_dim) + 3; }
  // Its memory may be written by those who may write the sums.
  static float* Row(const AttentionSums& sums, int64_t row);
  struct RowsShape {
    int64_t tokens, heads, value_dim;
  };
  // Throws Error unless there is room from first_row on.
  static void CheckRows(const char* function, const AttentionSums& sums, int64_t first_row,
                        const RowsShape& rows);
  // Its memory may be written by those who may write the cache.
  static internal::KvHead Head(const KvCache& c, int64_t kv_head);
};
inline constexpr int64_t kKeyBlock = AttentionAccess::kBlock;

namespace internal {

// Tile sizes, by measurement on a core with 48 KiB + 1.25 MiB of cache. A row is one query head of
// one token; 192 of them (a multiple of the micro kernel's 6) make reading keys and values from
// beyond the cache cheap enough (96: a tenth slower at 8 heads of 128). Scores of 192 x 256 stay in
// the second level; a block of 64 keys or a slice of 128 values in the first.
inline constexpr int kMicroRows = 6;
inline constexpr int64_t kTileRows = 192;
inline constexpr int64_t kTileKeys = 256;
inline constexpr int64_t kScoreStride = kTileKeys + AttentionAccess::kMaxLanes;
// Of weights in bf16: whole cache lines, an odd number of them.
inline constexpr int64_t kPairStride = kTileKeys + 2 * AttentionAccess::kMaxLanes;
// In AMX's tiles products are cheap beside reading and rounding keys and values, which more rows
// share; what biases keep of distances is made for kTileRows.
inline constexpr int64_t kPairTileMostRows = 2 * kTileRows;
// Memory of `rows` rows: AMX's tiles read and write whole ones of 16.
constexpr int64_t WholeRows(int64_t rows) { return (rows + 15) / 16 * 16; }

// Elements of a head, and what rows of them are padded to.
struct HeadDims {
  int64_t key = 0, value = 0;  // of queries and keys; of values

  HeadDims() = default;
  explicit HeadDims(const KvCache& cache) : key(cache.head_dim()), value(cache.value_dim()) {}
  constexpr int64_t key_stride() const { return AttentionAccess::RowStride(key); }
  constexpr int64_t value_stride() const { return AttentionAccess::RowStride(value); }
};

struct AttentionTile {
  const float* q;  // [tokens, group, head_dim]
  int64_t q_token_stride, q_head_stride;
  float* out;  // [tokens, group, value_dim]
  int64_t out_token_stride, out_head_stride;
  KvHead kv;  // of the key head
  HeadDims dims;
  int64_t head_dim, value_dim;       // those of dims
  int64_t key_stride, value_stride;  // a row of queries; of values
  int64_t panel_width;
  bool bf16;                   // products of q, k, v in bf16
  bool pair_tiles;             // those in AMX's tiles
  int64_t tokens, group;       // rows = tokens * group, token-major
  int64_t key_begin, key_end;  // multiples of kTileKeys, or the number of keys
  int64_t first_token, first_head;
  const int64_t *seen_begin, *seen_end;  // [tokens], of QueryRanges
  const FormRun* form;                   // null: no bias
  const RotationRun* rotation;           // null: q and keys are rotated already
  float soft_cap;                        // 0: none
  const float* temperatures;             // [tokens] or null
  const float* sinks;                    // [group] or null
  float scale;
  float* log_sum_exp;  // [tokens, log_sum_exp_stride] or null
  float* entropy;      // as log_sum_exp
  bool wants_entropy;  // rows sum what it needs
  int64_t log_sum_exp_stride;
  float* scratch;           // ScratchFloats(rows, dims) and FormScratchFloats
  float* rotation_scratch;  // RotationScratchFloats
  float* kv_scratch;        // KvScratch
  // When not null, `out` is left alone and each row gives its value_stride unnormalised sums and
  // its RowSums here.
  float* partial;  // [rows, value_stride + kRowSums]
};

// What a tile keeps of keys and values that the kernel cannot read as the cache has them, and of
// what it rounds. Sizes in floats.
struct KvScratch {
  static constexpr int64_t kValueSlice = 128;  // keys: 32 KiB of values at 64 dims
  int64_t key_block = 0;                       // [head_dim, 64]: decoded keys
  int64_t key_pairs = 0;                       // words [head_dim / 2, 64]: rounded ones
  int64_t values = 0;                          // [kValueSlice, panel_width]: decoded values
  int64_t value_pairs = 0;                     // words [kTileKeys / 2, value_stride]: rounded ones
  int64_t queries = 0;                         // bf16 [views, rows, key_stride]
  int64_t weights = 0;                         // bf16 [rows, kPairStride]

  KvScratch(KvType type, bool bf16, int64_t views, int64_t rows, const HeadDims& dims);
  int64_t floats() const {
    return key_block + key_pairs + values + value_pairs + queries + weights;
  }
};

// What is made once per call, before its tiles.
struct AttentionRun {
  QueryRanges ranges;
  FormRun form;
  RotationRun rotation;
  KvType kv_type = KvType::kF32;
  bool bf16 = false, pair_tiles = false;  // as in AttentionTile

  KvScratch KvScratchFor(int64_t rows, const HeadDims& dims) const {
    return {kv_type, bf16, std::max(1, rotation.views), rows, dims};
  }

  AttentionRun() = default;
  AttentionRun(const AttentionRun&) = delete;  // `form` points into it
  AttentionRun& operator=(const AttentionRun&) = delete;
};
void Prepare(const AttentionArgs& args, AttentionRun& run);

// Of the tokens from `token` on, against all keys and without scratch.
AttentionTile MakeTile(const AttentionArgs& args, const AttentionRun& run, int64_t token,
                       int64_t tokens, int64_t kv_head);
// Gives the tile its `scratch`.
void SetScratch(AttentionTile& tile, const AttentionRun& run, float* scratch);
// For tiles of up to `rows` rows.
int64_t TileScratchFloats(const AttentionRun& run, int64_t rows, int64_t group,
                          const HeadDims& dims);

constexpr int64_t ScratchFloats(int64_t rows, const HeadDims& dims) {
  // scores, queries, outputs, sums by lane, maxima; whole cache lines, so that threads share none
  const int64_t floats = WholeRows(rows) * (kScoreStride + dims.key_stride() + dims.value_stride() +
                                            2 * AttentionAccess::kMaxLanes + 1);
  return (floats + AttentionAccess::kMaxLanes - 1) / AttentionAccess::kMaxLanes *
         AttentionAccess::kMaxLanes;
}

// The memory of a form. Distances of one tile of keys fit a band while those of its tokens to one
// key differ by at most kBandSpread.
inline constexpr int64_t kBandSpread = kTileRows;
inline constexpr int64_t kBandStride = kBandSpread + kTileKeys + 2 * AttentionAccess::kMaxLanes;
// Columns that a few tokens whose distances differ by at most kChunkSpread, or six keys of a block,
// can meet.
inline constexpr int64_t kChunkSpread = 32;
inline constexpr int64_t kChunkTokens = kChunkSpread;
inline constexpr int64_t kColumnStride = kTileKeys + 4 * AttentionAccess::kMaxLanes;
inline constexpr int64_t kKeyColumns = kBandSpread + 4 * AttentionAccess::kMaxLanes;

int64_t FormScratchFloats(const FormRun& form, int64_t rows, int64_t group, int64_t head_dim);

// Any finite score is above; far enough from it that a difference stays a number.
inline constexpr float kNoScore = -1.7e38f;

// 2^f on [-0.5, 0.5]: least maximum relative error with a constant term of 1, each coefficient
// rounded to float32 before the next was fitted. In float32 arithmetic off by at most 1.6e-7, 1.3
// ULP.
inline constexpr float kExp2[] = {1.0f,          0.693147004f,   0.240222469f,
                                  0.0555071123f, 0.00967129413f, 0.00132694072f};
// 1.5 * 2^23: the low bits of a sum with it are the nearest integer.
inline constexpr float kExp2Shift = 12582912.0f;
inline constexpr float kExp2Least = -90.0f;  // 2^x of what is below is 0

// What the softmax keeps of a row, with scores s in units of log 2.
struct RowSums {
  float max;                 // of s
  float sum;                 // of the weights 2^(s - max)
  float weighted_score = 0;  // sum of 2^(s - max) (s - max), for the entropy
};
inline constexpr int64_t kRowSums = 3;

// The end of a row's softmax: the factor that normalises its sums of values. Adds the sink and
// writes the log-sum-exp.
float FinishRow(const AttentionTile& tile, int64_t group_head, int64_t token, RowSums row);
// Writes the entropy of a row's weights, where it is wanted.
void WriteEntropy(const AttentionTile& tile, int64_t group_head, int64_t token, RowSums row);

void AttendTile(const AttentionTile& tile) noexcept;

// A checked call of one query or more. `sums`: AttentionAccess::Row, to which its rows are added; null:
// they go to args.out.
void RunAttention(const AttentionArgs& args, float* sums, bool want_entropy);

int64_t AttentionTarget();  // the HWY_TARGET that dispatch chooses; for tests

}  // namespace internal
}  // namespace ropewalk
