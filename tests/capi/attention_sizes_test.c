/* Sizes, strides and positions that no memory has, and results whose heads share memory: refused
 * with what was expected, before anything is written. */
#include "tests/capi/attention_support.h"

static void test_forms_of_no_memory(void) {
  const float x[64] = {0};
  const int32_t row_of[64] = {0};
  const int64_t ends[] = {INT64_MIN, INT64_MAX, -(INT64_C(1) << 53) - 1, (INT64_C(1) << 53) + 1};
  ropewalk_form_spec s;
  ropewalk_bias b;
  ropewalk_form* form = NULL;
  size_t i;
  memset(&b, 0, sizeof b);
  b.size = sizeof b;
  b.method = "alibi";
  b.heads = 2;
  b.head_dim = INT64_MAX;
  EXPECT_REFUSED(ropewalk_form_lower(&b, &form), "bias.head_dim: expected 1 to 32768, got 922");
  memset(&s, 0, sizeof s);
  s.size = sizeof s;
#define EXPECT_BAD(says) EXPECT_REFUSED(ropewalk_form_create(&s, &form), says)
  s.kind = ROPEWALK_SLOPE;
  s.heads = INT64_MAX;
  s.head_dim = 2;
  s.behind = x;
  EXPECT_BAD("spec.heads: expected 1 to 65536, got 9223372036854775807");
  s.heads = 2;
  s.head_dim = INT64_MAX;
  EXPECT_BAD("spec.head_dim: expected 1 to 32768, got 9223372036854775807");
  s.head_dim = 2;
  s.behind = NULL;
  s.kind = ROPEWALK_DISTANCE;
  s.values = x;
  s.columns = (INT64_C(1) << 60) + 1;
  EXPECT_BAD("spec.values: expected at most 2305843009213693951 elements, got 2305843009213693954");
  s.columns = 32;
  for (i = 0; i < sizeof ends / sizeof *ends; ++i) {
    s.first = ends[i];
    EXPECT_BAD("DistanceForm.first: expected a distance within 2^53, got ");
  }
  s.values = NULL;
  s.kind = ROPEWALK_CONTENT;
  s.rows = 1;
  s.row_of = row_of;
  for (i = 0; i < sizeof ends / sizeof *ends; ++i) {
    s.first = ends[i];
    EXPECT_BAD("ContentForm.first: expected a distance within 2^53, got ");
  }
  s.first = INT64_C(1) << 53;
  EXPECT_OK(ropewalk_form_create(&s, &form));
  ropewalk_form_destroy(form);
  s.columns = INT64_MAX;
  EXPECT_BAD("spec.row_of: expected at most ");
#undef EXPECT_BAD
}

/* ALiBi takes any distance of positions within 2^52; lowering takes 2^30. */
static void test_distances(void) {
  const int64_t far = INT64_C(1) << 40, keys[] = {0}, queries[] = {INT64_C(1) << 40};
  int64_t outside[] = {INT64_MIN};
  const float slopes[] = {0x1p-40f};
  problem p = make_problem(1, 1, 1, 1, 1);
  ropewalk_bias b;
  ropewalk_form* form = NULL;
  call c;
  memset(&b, 0, sizeof b);
  b.size = sizeof b;
  b.method = "alibi";
  b.heads = b.head_dim = b.num_values = 1;
  b.values = slopes;
  b.max_distance = INT64_C(1) << 30;
  p.q[0] = 0;
  make_call(&p, &b, &c);
  c.args.query_positions = queries;
  c.args.key_positions = keys;
  c.args.log_sum_exp = c.log_sum_exp;
  EXPECT_OK(ropewalk_attention(&c.args));
  EXPECT_NEAR(c.log_sum_exp[0], -(double)far * slopes[0], 1e-6);
  c.args.key_positions = outside;
  EXPECT_REFUSED(ropewalk_attention(&c.args), "key_positions: expected positions within 2^52");
  outside[0] = -(INT64_C(1) << 52) - 1;
  EXPECT_REFUSED(ropewalk_attention(&c.args), "key_positions: expected positions within 2^52");
  c.args.key_positions = NULL;
  c.args.document_starts = keys;
  c.args.num_documents = INT64_C(1) << 62;
  EXPECT_REFUSED(ropewalk_attention(&c.args), "document_starts: expected at most ");
  ++b.max_distance;
  EXPECT_REFUSED(ropewalk_form_lower(&b, &form),
                 "AlibiBias.Lower: max_distance: expected 0 to 2^30, got 1073741825");
  free_call(&c);
  free_problem(&p);
}

static void test_maps_of_no_tokens(void) {
  const ropewalk_spec spec = spec_of(8);
  ropewalk_load_rotation* r = NULL;
  ropewalk_distance_map m;
  memset(&m, 0, sizeof m);
  m.size = sizeof m;
  m.kind = ROPEWALK_SINKS;
  m.window = 8;
  m.sinks = INT64_MAX;
#define EXPECT_BAD(says) \
  EXPECT_REFUSED(ropewalk_load_rotation_create(&spec, 64, ROPEWALK_EXACT, &m, &r), says)
  EXPECT_BAD("sinks: expected at most 2^31, got 9223372036854775807");
  m.sinks = 0;
  m.kind = ROPEWALK_LEAKY_REROPE;
  m.factor = INT64_MAX;
  EXPECT_BAD("factor: expected at most 2^31, got 9223372036854775807");
#undef EXPECT_BAD
}

static void test_append(void) {
  const int64_t sizes[] = {-1, INT64_MIN};
  const int64_t strides[] = {INT64_MAX, INT64_MIN, INT64_C(1) << 62, -(INT64_C(1) << 61)};
  float x[2 * 2 * 4] = {0};
  ropewalk_kv_cache* cache = NULL;
  ropewalk_kv_cache_info info;
  ropewalk_tensor k = tensor(x, ROPEWALK_F32, 2, 2, 4), good = k;
  size_t i;
  int dim;
  EXPECT_OK(ropewalk_kv_cache_create(2, 4, 8, &cache));
  for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    k.shape[0] = sizes[i];
    EXPECT_REFUSED(ropewalk_kv_cache_append(cache, &k, &k), "k: expected 0 tokens or more, got -");
  }
  for (i = 0; i < sizeof strides / sizeof *strides; ++i) {
    for (dim = 0; dim < 2; ++dim) {
      k = good;
      k.strides[dim] = strides[i];
      EXPECT_REFUSED(ropewalk_kv_cache_append(cache, &k, &good), "k: shape [2, 2, 4] with stride ");
      EXPECT_REFUSED(ropewalk_kv_cache_append(cache, &good, &k), "v: shape [2, 2, 4] with stride ");
    }
  }
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  EXPECT_OK(ropewalk_kv_cache_get(cache, &info));
  EXPECT(info.tokens == 0);
  /* The stride of one token is never used; keys may be broadcast. */
  k = good;
  k.strides[0] = k.strides[1] = 0;
  EXPECT_OK(ropewalk_kv_cache_append(cache, &k, &good));
  k = tensor(x, ROPEWALK_F32, 1, 2, 4);
  k.strides[0] = INT64_MAX;
  EXPECT_OK(ropewalk_kv_cache_append(cache, &k, &k));
  ropewalk_kv_cache_destroy(cache);
}

/* What is read may share memory, and what is written may not. */
static void test_shared_memory(void) {
  static const struct {
    int64_t token_stride, head_stride;
    int apart;
  } cases[] = {{0, 8, 0},   {16, 0, 0},  {16, 7, 0}, {15, 8, 0},  {8, 8, 0},
               {-16, 8, 1}, {16, -8, 1}, {8, 24, 1}, {16, 24, 1}, {24, 16, 1},
               {8, 16, 0},  {16, 23, 0}, {20, 8, 1}, {100, 30, 1}};
  problem p = make_problem(2, 2, 8, 3, 3);
  ropewalk_attention_backward_args args;
  float d[3 * 2 * 8] = {0}, memory[1024];
  ropewalk_tensor good = tensor(d, ROPEWALK_F32, 3, 2, 8), view = good;
  call c;
  size_t i;
  make_call(&p, NULL, &c);
  c.args.log_sum_exp = c.log_sum_exp;
  EXPECT_OK(ropewalk_attention(&c.args));
  memset(&args, 0, sizeof args);
  args.size = sizeof args;
  args.forward = &c.args;
  view.data = memory + 512;
#define EXPECT_APART(call, says)                                                       \
  do {                                                                                 \
    if (cases[i].apart) {                                                              \
      EXPECT_OK(call);                                                                 \
    } else {                                                                           \
      EXPECT_REFUSED(call, says ": expected heads of [3, 2, 8] that share no memory"); \
    }                                                                                  \
  } while (0)
  for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
    view.strides[0] = cases[i].token_stride;
    view.strides[1] = cases[i].head_stride;
    args.d_out = args.d_q = args.d_k = args.d_v = &good;
    args.d_q = &view;
    EXPECT_APART(ropewalk_attention_backward(&args), "d_q");
    args.d_q = &good;
    args.d_k = &view;
    EXPECT_APART(ropewalk_attention_backward(&args), "d_k");
    args.d_k = &good;
    args.d_v = &view;
    EXPECT_APART(ropewalk_attention_backward(&args), "d_v");
    c.args.out = &view;
    EXPECT_APART(ropewalk_attention(&c.args), "out");
    c.args.out = &c.out;
  }
#undef EXPECT_APART
  memset(memory, 0, sizeof memory);
  view.strides[0] = view.strides[1] = 0;
  args.d_v = &good;
  args.d_out = &view;
  EXPECT_OK(ropewalk_attention_backward(&args));
  c.args.q = &view;
  EXPECT_OK(ropewalk_attention(&c.args));
  view.strides[0] = INT64_C(1) << 61;
  EXPECT_REFUSED(ropewalk_attention(&c.args), "q: shape [3, 2, 8] with stride 2305843009213693952");
  c.args.q = &c.q;
  EXPECT_REFUSED(ropewalk_attention_backward(&args), "d_out: shape [3, 2, 8] with stride ");
  free_call(&c);
  free_problem(&p);
}

/* The stride of a size of one says nothing. */
static void test_one_head(void) {
  const int64_t strides[] = {0, 3, INT64_MAX, INT64_MIN};
  problem p = make_problem(1, 1, 8, 3, 3);
  call c;
  size_t i;
  make_call(&p, NULL, &c);
  for (i = 0; i < sizeof strides / sizeof *strides; ++i) {
    c.out.strides[1] = c.q.strides[1] = strides[i];
    EXPECT_OK(ropewalk_attention(&c.args));
  }
  free_call(&c);
  free_problem(&p);
}

void test_huge_sizes(void) {
  test_forms_of_no_memory();
  test_distances();
  test_maps_of_no_tokens();
  test_append();
  test_shared_memory();
  test_one_head();
}
