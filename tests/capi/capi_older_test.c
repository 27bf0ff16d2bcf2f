/* Calls of programs that were built against older headers: each struct that has had another size,
 * typed again as the header had it then, gives what today's gives. */
#include "tests/capi/capi_test.h"

/* The first published header. */
typedef struct first_tensor {
  size_t size;
  void* data;
  int32_t dtype;
  int32_t rank;
  int64_t shape[5];
  int64_t strides[5];
} first_tensor;
typedef struct first_rotate_args {
  size_t size;
  const ropewalk_table* table;
  const ropewalk_frequencies* frequencies;
  int32_t precision;
  int32_t layout;
  int32_t direction;
  int32_t values;
  const ropewalk_positions* positions;
  const first_tensor* q;
  const first_tensor* k;
  const first_tensor* v;
  const first_tensor* q_out;
  const first_tensor* k_out;
  const first_tensor* v_out;
  int64_t first_dim;
  int64_t rotated_heads;
  const float* q_norm_weight;
  const float* k_norm_weight;
  double q_norm_eps;
  double k_norm_eps;
  const int64_t* slots;
  int64_t num_slots;
} first_rotate_args;
typedef struct first_q8_keys {
  size_t size;
  void* data;
  int64_t batch, tokens, heads, head_dim;
  int64_t strides_bytes[3];
} first_q8_keys;
typedef struct first_rerotate_args {
  size_t size;
  const ropewalk_frequencies* frequencies;
  const ropewalk_frequencies* from;
  int32_t layout;
  int32_t amplitude_ratio;
  int64_t delta;
  const int64_t* sequence_deltas;
  const int64_t* token_deltas;
  const int64_t* old_positions;
  const int64_t* new_positions;
  int64_t num;
  const first_tensor* keys;
  const first_q8_keys* q8_keys;
  int64_t first_dim;
} first_rerotate_args;

enum { kTokens = 5, kHeads = 2, kDim = 32, kNumbers = kTokens * kHeads * kDim };

static void fill(float* x) {
  int i;
  for (i = 0; i < kNumbers; ++i) x[i] = (float)sin(0.7 * i);
}

static first_tensor first_view(float* data) {
  first_tensor t;
  memset(&t, 0, sizeof t);
  t.size = sizeof t;
  t.data = data;
  t.dtype = ROPEWALK_F32;
  t.rank = 3;
  t.shape[0] = kTokens;
  t.shape[1] = kHeads;
  t.shape[2] = t.strides[1] = kDim;
  t.strides[0] = kHeads * kDim;
  t.strides[2] = 1;
  return t;
}

/* The bytes behind an older struct are the caller's and no part of it. */
static void test_rotate(const ropewalk_frequencies* f) {
  float want[kNumbers], got[kNumbers];
  ropewalk_tensor want_view = tensor(want, ROPEWALK_F32, kTokens, kHeads, kDim);
  const first_tensor got_view = first_view(got);
  const ropewalk_positions positions = start_at(131071);
  ropewalk_rotate_args args = rotate_args(&positions, &want_view);
  struct {
    first_rotate_args args;
    int64_t another[2];
  } older = {{0}, {-1, -1}};
  EXPECT(sizeof older.args == 160 && sizeof got_view == 104);
  fill(want);
  args.frequencies = f;
  EXPECT_OK(ropewalk_rotate(&args));

  fill(got);
  older.args.size = sizeof older.args;
  older.args.frequencies = f;
  older.args.layout = ROPEWALK_HALF;
  older.args.positions = &positions;
  older.args.q = &got_view;
  EXPECT_OK(ropewalk_rotate((const ropewalk_rotate_args*)(const void*)&older));
  EXPECT(memcmp(want, got, sizeof want) == 0);

  /* Today's call with an older tensor, and sizes that no header had. */
  fill(got);
  args.q = (const ropewalk_tensor*)(const void*)&got_view;
  EXPECT_OK(ropewalk_rotate(&args));
  EXPECT(memcmp(want, got, sizeof want) == 0);
  for (args.size = 8; args.size < sizeof args; ++args.size) {
    if (args.size != sizeof older.args) EXPECT_REFUSED(ropewalk_rotate(&args), "args.size");
  }
  args.size = sizeof args;
  args.q = &want_view;
  for (want_view.size = 8; want_view.size < sizeof want_view; ++want_view.size) {
    if (want_view.size != sizeof got_view) EXPECT_REFUSED(ropewalk_rotate(&args), "q.size");
  }
}

static void test_rerotate(const ropewalk_frequencies* f) {
  enum { kBlockBytes = 34 }; /* one of 32 elements: a float16 scale, 32 int8 */
  float want[kNumbers], got[kNumbers];
  unsigned char want_q8[kTokens * kHeads * kBlockBytes], got_q8[sizeof want_q8];
  const ropewalk_tensor want_view = tensor(want, ROPEWALK_F32, kTokens, kHeads, kDim);
  const first_tensor got_view = first_view(got);
  ropewalk_q8_keys want_keys;
  first_q8_keys got_keys;
  ropewalk_rerotate_args args;
  struct {
    first_rerotate_args args;
    int64_t another;
  } older = {{0}, -1};
  size_t i;
  EXPECT(sizeof older.args == 104 && sizeof got_keys == 72);
  memset(&args, 0, sizeof args);
  args.size = sizeof args;
  args.frequencies = older.args.frequencies = f;
  args.layout = older.args.layout = ROPEWALK_HALF;
  args.delta = older.args.delta = 1000;
  older.args.size = sizeof older.args;

  fill(want);
  fill(got);
  args.keys = &want_view;
  older.args.keys = &got_view;
  EXPECT_OK(ropewalk_rerotate(&args));
  EXPECT_OK(ropewalk_rerotate((const ropewalk_rerotate_args*)(const void*)&older));
  EXPECT(memcmp(want, got, sizeof want) == 0);

  for (i = 0; i < sizeof want_q8; ++i) {
    want_q8[i] = i % kBlockBytes == 0 ? 0 : i % kBlockBytes == 1 ? 0x3c : (unsigned char)(i % 100);
  }
  memcpy(got_q8, want_q8, sizeof got_q8);
  memset(&want_keys, 0, sizeof want_keys);
  memset(&got_keys, 0, sizeof got_keys);
  want_keys.size = sizeof want_keys;
  got_keys.size = sizeof got_keys;
  want_keys.data = want_q8;
  got_keys.data = got_q8;
  want_keys.batch = got_keys.batch = 1;
  want_keys.tokens = got_keys.tokens = kTokens;
  want_keys.heads = got_keys.heads = kHeads;
  want_keys.head_dim = got_keys.head_dim = kDim;
  args.keys = NULL;
  older.args.keys = NULL;
  args.q8_keys = &want_keys;
  older.args.q8_keys = &got_keys;
  EXPECT_OK(ropewalk_rerotate(&args));
  EXPECT_OK(ropewalk_rerotate((const ropewalk_rerotate_args*)(const void*)&older));
  EXPECT(memcmp(want_q8, got_q8, sizeof want_q8) == 0);
}

void test_older_headers(void) {
  ropewalk_frequencies* f = plain(kDim);
  test_rotate(f);
  test_rerotate(f);
  ropewalk_frequencies_destroy(f);
}
