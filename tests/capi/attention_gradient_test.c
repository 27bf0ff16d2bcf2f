/* Gradients in C against differences of the reference. */
#include "tests/capi/attention_support.h"

static double loss(const problem* p, const float* weights) {
  const int64_t count = p->queries * p->heads * p->dim;
  double* out = malloc((size_t)count * sizeof *out);
  double* sums = malloc((size_t)(p->queries * p->heads) * sizeof *sums);
  double sum = 0;
  int64_t i;
  reference(p, out, sums, NULL);
  for (i = 0; i < count; ++i) sum += out[i] * weights[i];
  free(out);
  free(sums);
  return sum;
}

/* Each of `count` numbers that the problem reads, moved by 2^-8 to both sides. */
static void expect_differences(const problem* p, const float* weights, float* x, const float* d,
                               const double* wide, int64_t count, const char* what) {
  int64_t i, step = count / 40 + 1;
  for (i = 0; i < count; i += step) {
    const float before = x[i], h = 0x1p-8f;
    const double got = d != NULL ? d[i] : wide[i];
    double far, near;
    x[i] = before + 2 * h;
    far = loss(p, weights);
    x[i] = before - 2 * h;
    far -= loss(p, weights);
    x[i] = before + h;
    near = loss(p, weights);
    x[i] = before - h;
    near -= loss(p, weights);
    x[i] = before;
    if (fabs((8 * near - far) / (12 * (double)h) - got) <= 2e-5 * (1 + fabs(got))) continue;
    fprintf(stderr, "%s %d: %g, by differences %g\n", what, (int)i, got,
            (8 * near - far) / (12 * (double)h));
    ++failures;
  }
}

/* d_form: which gradients are wanted, with room for them. */
static void check(problem* p, const ropewalk_form_gradient* d_form, float* d_sinks,
                  float* weights) {
  const int64_t rows = p->queries * p->heads * p->dim, keys = p->keys * p->kv_heads * p->dim;
  float* d_q = malloc((size_t)rows * sizeof *d_q);
  float *d_k = malloc((size_t)keys * sizeof *d_k), *d_v = malloc((size_t)keys * sizeof *d_v);
  ropewalk_tensor q = tensor(d_q, ROPEWALK_F32, p->queries, p->heads, p->dim);
  ropewalk_tensor out = tensor(weights, ROPEWALK_F32, p->queries, p->heads, p->dim);
  ropewalk_tensor k = tensor(d_k, ROPEWALK_F32, p->keys, p->kv_heads, p->dim);
  ropewalk_tensor v = tensor(d_v, ROPEWALK_F32, p->keys, p->kv_heads, p->dim);
  ropewalk_attention_backward_args args;
  call c;
  make_call(p, NULL, &c);
  EXPECT_OK(ropewalk_attention(&c.args));
  memset(&args, 0, sizeof args);
  args.size = sizeof args;
  args.forward = &c.args;
  args.d_out = &out;
  args.d_q = &q;
  args.d_k = &k;
  args.d_v = &v;
  args.d_form = d_form;
  args.d_sinks = d_sinks;
  EXPECT_OK(ropewalk_attention_backward(&args));
  expect_differences(p, weights, p->q, d_q, NULL, rows, "q");
  expect_differences(p, weights, p->k, d_k, NULL, keys, "k");
  expect_differences(p, weights, p->v, d_v, NULL, keys, "v");
  free_call(&c);
  free(d_q);
  free(d_k);
  free(d_v);
}

static ropewalk_form_gradient nothing(void) {
  ropewalk_form_gradient d;
  memset(&d, 0, sizeof d);
  d.size = sizeof d;
  return d;
}

static void test_slopes_and_sinks(void) {
  float slopes[] = {0.25f, 0.5f}, ahead[] = {0.125f, 1}, sinks[] = {0.5f, -1};
  float d_behind[2], d_ahead[2], d_sinks[2], *weights = numbers(12 * 2 * 4, 30, 1);
  problem p = make_problem(2, 1, 4, 12, 15);
  ropewalk_form_gradient d = nothing();
  p.bidirectional = 1;
  p.cap = 4;
  p.sinks = sinks;
  p.form.kind = ROPEWALK_SLOPE;
  p.form.behind = slopes;
  p.form.ahead = ahead;
  d.behind = d_behind;
  d.ahead = d_ahead;
  check(&p, &d, d_sinks, weights);
  expect_differences(&p, weights, slopes, d_behind, NULL, 2, "behind");
  expect_differences(&p, weights, ahead, d_ahead, NULL, 2, "ahead");
  expect_differences(&p, weights, sinks, d_sinks, NULL, 2, "sinks");
  free_problem(&p);
  free(weights);
}

/* A table, and T5, KERPLE and ALiBi, whose numbers it is made of. */
static void test_table(void) {
  float *table = numbers(2 * 15, 31, 1), *weights = numbers(12 * 2 * 4, 30, 1), d_values[2 * 15];
  double buckets[32 * 2], kerple[4], slopes[2], total = 0;
  const ropewalk_parameter decoder[] = {{"bidirectional", 0}};
  const float r[] = {0.5f, 1, 0.25f, 2} /* r1, then r2 */, embedding[64] = {0};
  problem p = make_problem(2, 1, 4, 12, 15);
  ropewalk_form_gradient d = nothing();
  ropewalk_bias b;
  int i;
  p.form.kind = ROPEWALK_DISTANCE;
  p.form.columns = 15;
  p.form.values = table;
  d.values = d_values;
  check(&p, &d, NULL, weights);
  expect_differences(&p, weights, table, d_values, NULL, 30, "values");

  memset(&b, 0, sizeof b);
  b.size = sizeof b;
  b.method = "t5";
  b.heads = 2;
  b.head_dim = 4;
  b.max_distance = 14;
  b.parameters = decoder;
  b.num_parameters = 1;
  b.values = embedding;
  b.num_values = 64;
  EXPECT_OK(ropewalk_bias_gradient(&b, &d, buckets));
  for (i = 0; i < 15; ++i) { /* distances below 16 have a bucket each */
    EXPECT(buckets[i * 2] == d_values[i] && buckets[i * 2 + 1] == d_values[15 + i]);
  }
  b.method = "kerple";
  b.num_parameters = 0;
  b.values = r;
  b.num_values = 4;
  EXPECT_OK(ropewalk_bias_gradient(&b, &d, kerple));
  for (i = 0; i < 15; ++i) total -= (double)d_values[15 + i] * i / (1 + 2.0 * i);
  EXPECT_NEAR(kerple[3], total, 1e-12);
  for (i = 0, total = 0; i < 15; ++i) total -= (double)d_values[i] * log1p(0.25 * i);
  EXPECT_NEAR(kerple[0], total, 1e-12);

  b.method = "alibi";
  b.num_values = 2;
  EXPECT_REFUSED(ropewalk_bias_gradient(&b, &d, slopes), "d_form.behind: expected a pointer");
  d.behind = d_values;
  EXPECT_OK(ropewalk_bias_gradient(&b, &d, slopes));
  EXPECT(slopes[0] == d_values[0] && slopes[1] == d_values[1]);
  b.num_values = 0;
  EXPECT_REFUSED(ropewalk_bias_gradient(&b, &d, slopes), "expected learned slopes");
  b.method = "sandwich";
  EXPECT_REFUSED(ropewalk_bias_gradient(&b, &d, slopes), "learns nothing");
  free_problem(&p);
  free(table);
  free(weights);
}

static void test_content_rows(void) {
  const int32_t row_of[] = {0, 1, 2, 3};
  float* x[5];
  float *d_x[5], *weights = numbers(10 * 2 * 4, 30, 1);
  const int64_t counts[] = {16, 16, 16, 8, 8};
  static const char* const names[] = {"query_rows", "key_rows", "value_rows", "query_bias",
                                      "key_bias"};
  problem p = make_problem(2, 1, 4, 10, 12);
  ropewalk_form_gradient d = nothing();
  int n;
  for (n = 0; n < 5; ++n) {
    x[n] = numbers(counts[n], 40 + (uint32_t)n, 1);
    d_x[n] = malloc((size_t)counts[n] * sizeof(float));
  }
  p.form.kind = ROPEWALK_CONTENT;
  p.form.columns = 4;
  p.form.repeats_behind = 1;
  p.form.row_of = row_of;
  p.form.rows = 4;
  p.form.query_rows = x[0], p.form.key_rows = x[1], p.form.value_rows = x[2];
  p.form.query_bias = x[3], p.form.key_bias = x[4];
  d.query_rows = d_x[0], d.key_rows = d_x[1], d.value_rows = d_x[2];
  d.query_bias = d_x[3], d.key_bias = d_x[4];
  check(&p, &d, NULL, weights);
  for (n = 0; n < 5; ++n) {
    expect_differences(&p, weights, x[n], d_x[n], NULL, counts[n], names[n]);
  }
  for (n = 0; n < 5; ++n) {
    free(x[n]);
    free(d_x[n]);
  }
  free_problem(&p);
  free(weights);
}

static void test_running_forms(void) {
  float *gates = numbers(12 * 2, 50, 1), *weights = numbers(10 * 2 * 4, 30, 1), d_gates[12 * 2];
  float rows[14 * 4], d_rows[14 * 4], *start = numbers(4, 51, 1), *step = numbers(4, 52, 0.25f);
  problem p = make_problem(2, 1, 4, 10, 12);
  ropewalk_form_gradient d = nothing();
  int i;
  p.form.kind = ROPEWALK_GATES;
  p.form.log_gates = gates;
  p.form.gate_tokens = 12;
  d.log_gates = d_gates;
  check(&p, &d, NULL, weights);
  expect_differences(&p, weights, gates, d_gates, NULL, 24, "log_gates");

  /* Rows on a line, more than a count can reach: differences see no kinks. */
  for (i = 0; i < 14 * 4; ++i) rows[i] = start[i % 4] + (float)(i / 4) * step[i % 4];
  p.form.kind = ROPEWALK_CONTEXTUAL;
  p.form.log_gates = NULL;
  p.form.gate_tokens = 0;
  p.form.rows = 14;
  p.form.position_rows = rows;
  d = nothing();
  d.position_rows = d_rows;
  check(&p, &d, NULL, weights);
  expect_differences(&p, weights, rows, d_rows, NULL, 14 * 4, "position_rows");
  free_problem(&p);
  free(gates);
  free(weights);
  free(start);
  free(step);
}

static void falls(void* context, int64_t head, const int64_t* queries, int64_t num_queries,
                  const int64_t* keys, int64_t num_keys, float* out, int64_t stride) {
  const float* size = context;
  int64_t r, c;
  for (r = 0; r < num_queries; ++r) {
    for (c = 0; c < num_keys; ++c) {
      out[r * stride + c] = size[head] * (float)(queries[r] - keys[c]) / 16;
    }
  }
}
static void falls_gradient(void* context, int64_t head, const int64_t* queries, int64_t num_queries,
                           const int64_t* keys, int64_t num_keys, const float* d_bias,
                           int64_t stride, double* gradient) {
  int64_t r, c;
  (void)context;
  for (r = 0; r < num_queries; ++r) {
    for (c = 0; c < num_keys; ++c) {
      gradient[head] += (double)d_bias[r * stride + c] * (double)(queries[r] - keys[c]) / 16;
    }
  }
}

static void test_pairs(void) {
  float sizes[] = {0.5f, -1}, *weights = numbers(10 * 2 * 4, 30, 1);
  double d_sizes[2];
  problem p = make_problem(2, 2, 4, 10, 12);
  ropewalk_form_gradient d = nothing();
  p.form.kind = ROPEWALK_PAIR;
  p.form.pair_bias = falls;
  p.form.pair_gradient = falls_gradient;
  p.form.pair_context = sizes;
  p.form.pair_parameters = 2;
  d.pair_parameters = d_sizes;
  check(&p, &d, NULL, weights);
  expect_differences(&p, weights, sizes, NULL, d_sizes, 2, "pair_parameters");
  free_problem(&p);
  free(weights);
}

static void test_mapped(void) {
  static const ropewalk_distance_map maps[] = {
      {.size = sizeof maps[0], .kind = ROPEWALK_REROPE, .window = 5},
      {.size = sizeof maps[0], .kind = ROPEWALK_SELF_EXTEND, .window = 5, .group = 3},
      {.size = sizeof maps[0], .kind = ROPEWALK_DUAL_CHUNK, .chunk = 6, .limit = 9},
      {.size = sizeof maps[0], .kind = ROPEWALK_SINKS, .window = 5, .sinks = 2},
      {.size = sizeof maps[0], .kind = ROPEWALK_STRING, .window = 2, .shift = 6}};
  float* weights = numbers(10 * 2 * 4, 30, 1);
  int i;
  for (i = 0; i < 5; ++i) {
    problem p = make_problem(2, 1, 4, 10, 25);
    p.base = 100;
    p.map = maps[i];
    check(&p, NULL, NULL, weights);
    free_problem(&p);
  }
  free(weights);
}

static void test_bad_gradients(void) {
  float table[10] = {0}, d_x[3 * 8], room[10];
  problem p = make_problem(1, 1, 8, 3, 3);
  ropewalk_tensor d = tensor(d_x, ROPEWALK_F32, 3, 1, 8), short_d = tensor(d_x, 1, 2, 1, 8);
  ropewalk_form_gradient d_form = nothing();
  ropewalk_attention_backward_args args;
  call c;
  int i;
  p.form.kind = ROPEWALK_DISTANCE;
  p.form.columns = 10;
  p.form.values = table;
  make_call(&p, NULL, &c);
  EXPECT_OK(ropewalk_attention(&c.args));
  memset(&args, 0, sizeof args);
  args.size = sizeof args;
#define EXPECT_BAD(says) EXPECT_REFUSED(ropewalk_attention_backward(&args), says)
  EXPECT_BAD("args: expected a pointer");
  args.forward = &c.args;
  EXPECT_BAD("d_out: expected a pointer");
  args.d_out = args.d_q = args.d_k = args.d_v = &d;
  args.d_k = &short_d;
  EXPECT_BAD("d_k: expected float32 [3, 1, 8]");
  args.d_k = &d;
  args.d_sinks = room;
  EXPECT_BAD("d_sinks: the call has no sinks");
  args.d_sinks = NULL;
  for (i = 0; i < 24; ++i) d_x[i] = 5;
  args.d_form = &d_form;
  d_form.behind = room;
  EXPECT_BAD("d_form.behind: the form has none; expected NULL");
  d_form.behind = NULL;
  d_form.size = 8;
  EXPECT_BAD("d_form.size: expected sizeof");
  d_form.size = sizeof d_form;
  c.args.log_sum_exp = NULL;
  EXPECT_BAD("log_sum_exp: expected what Attention wrote");
#undef EXPECT_BAD
  for (i = 0; i < 24; ++i) EXPECT(d_x[i] == 5);
  EXPECT_REFUSED(ropewalk_attention_backward(NULL), "args: expected a pointer");
  free_call(&c);
  free_problem(&p);
}

void test_gradients(void) {
  test_slopes_and_sinks();
  test_table();
  test_content_rows();
  test_running_forms();
  test_pairs();
  test_mapped();
  test_bad_gradients();
}
