/* Every form of a bias in C against the reference, the four methods by name against their formulas
 * typed again, and what is refused. */
#include "tests/capi/attention_support.h"

static const int64_t kFar[] = {0, 1, 255, 256, 257, 131071, 1048575};
enum { kLast = 1048575 };

/* Seven tokens at far positions, causal. */
static problem far_problem(int64_t heads) {
  problem p = make_problem(heads, 1, 8, 7, 7);
  p.query_positions = p.key_positions = kFar;
  return p;
}

static ropewalk_bias method(const char* name, int64_t heads, int64_t max_distance) {
  ropewalk_bias b;
  memset(&b, 0, sizeof b);
  b.size = sizeof b;
  b.method = name;
  b.heads = heads;
  b.head_dim = 8;
  b.max_distance = max_distance;
  return b;
}

static void test_alibi(void) {
  const ropewalk_parameter parameters[] = {{"max_bias", 4}, {"ahead", 1}};
  float slopes[] = {0.0625f, 0.5f, 2}, three[3], learned[] = {1e-6f, 0.25f};
  ropewalk_bias b = method("alibi", 3, kLast);
  problem p = far_problem(3);
  int h;
  /* Three heads: those of two, 2^-4 and 2^-8, then the first of four. */
  three[0] = powf(2, -4), three[1] = powf(2, -8), three[2] = powf(2, -2);
  p.form.kind = ROPEWALK_SLOPE;
  p.form.behind = three;
  expect_same(&p, &b, "alibi");
  expect_same(&p, NULL, "its form");
  for (h = 0; h < 3; ++h) slopes[h] = sqrtf(three[h]);
  p.bidirectional = 1;
  p.form.behind = p.form.ahead = slopes;
  b.parameters = parameters;
  b.num_parameters = 2;
  expect_same(&p, &b, "alibi on both sides, half of max_bias");
  expect_same(&p, NULL, "its form, on both sides");
  free_problem(&p);

  p = far_problem(2);
  p.form.kind = ROPEWALK_SLOPE;
  p.form.behind = learned;
  b = method("alibi", 2, kLast);
  b.values = learned;
  b.num_values = 2;
  expect_same(&p, &b, "learned slopes");
  free_problem(&p);
}

/* Of T5's decoder, 32 buckets: 16 distances have one each, the others share up to 128. */
static int64_t t5_bucket(int64_t d) {
  int64_t b;
  if (d < 16) return d;
  b = 16 + (int64_t)(log((double)d / 16) / log(8.0) * 16 + 1e-9);
  return b < 31 ? b : 31;
}

static void test_tables(void) {
  const ropewalk_parameter decoder[] = {{"bidirectional", 0}}, small[] = {{"dim", 4}};
  const float r[] = {0.5f, 0.01f, 0.1f, 2}; /* r1, then r2 */
  float* embedding = numbers(32 * 2, 5, 3);
  float* table = malloc(2 * (kLast + 1) * sizeof *table);
  ropewalk_bias b = method("t5", 2, kLast);
  problem p = far_problem(2);
  int64_t d;
  int h;
  p.form.kind = ROPEWALK_DISTANCE;
  p.form.columns = kLast + 1;
  p.form.values = table;
  for (h = 0; h < 2; ++h) {
    for (d = 0; d <= kLast; ++d) table[h * (kLast + 1) + d] = embedding[t5_bucket(d) * 2 + h];
  }
  b.parameters = decoder;
  b.num_parameters = 1;
  b.values = embedding;
  b.num_values = 64;
  expect_same(&p, &b, "t5");
  expect_same(&p, NULL, "its table");

  b = method("kerple", 2, kLast);
  b.values = r;
  b.num_values = 4;
  for (h = 0; h < 2; ++h) {
    for (d = 0; d <= kLast; ++d) {
      table[h * (kLast + 1) + d] = (float)(-(double)r[h] * log1p((double)r[2 + h] * (double)d));
    }
  }
  expect_same(&p, &b, "kerple");

  b = method("sandwich", 2, kLast);
  b.parameters = small;
  b.num_parameters = 1;
  for (h = 0; h < 2; ++h) {
    for (d = 0; d <= kLast; ++d) {
      table[h * (kLast + 1) + d] =
          (float)(2.0 / (8 * (h + 1)) * (cos((double)d) + cos((double)d / 100)));
    }
  }
  expect_same(&p, &b, "sandwich");

  /* A table of 20 distances: all others are refused, or what its end has. */
  p.form.columns = 20;
  {
    call c;
    make_call(&p, NULL, &c);
    EXPECT_REFUSED(ropewalk_attention(&c.args), "knows distances 0 to 19");
    free_call(&c);
  }
  p.form.repeats_behind = 1;
  expect_same(&p, NULL, "a table whose end repeats");
  free_problem(&p);
  free(table);
  free(embedding);
}

static void test_content(void) {
  const int32_t row_of[] = {0, 0, 1, 2, 3, 3, 4};
  float* rows[5];
  problem p = make_problem(4, 2, 8, 30, 50);
  int table_heads, n;
  p.form.kind = ROPEWALK_CONTENT;
  p.form.first = -2;
  p.form.columns = 7;
  p.form.repeats_ahead = p.form.repeats_behind = 1;
  p.form.row_of = row_of;
  p.form.rows = 5;
  for (table_heads = 1; table_heads <= 4; table_heads += 3) {
    for (n = 0; n < 5; ++n) rows[n] = numbers(4 * 5 * 8, 10 + (uint32_t)n, 1);
    p.form.table_heads = table_heads;
    p.bidirectional = table_heads == 4;
    p.form.query_rows = rows[0];
    p.form.key_rows = rows[1];
    p.form.value_rows = rows[2];
    p.form.query_bias = rows[3];
    p.form.key_bias = rows[4];
    expect_same(&p, NULL, "content");
    p.form.key_rows = p.form.value_rows = p.form.query_bias = p.form.key_bias = NULL;
    expect_same(&p, NULL, "content, queries alone");
    for (n = 0; n < 5; ++n) free(rows[n]);
  }
  free_problem(&p);
}

static void test_running(void) {
  float *gates = numbers(50 * 4, 20, 1), *rows = numbers(4 * 9 * 8, 21, 1);
  problem p = make_problem(4, 2, 8, 30, 50);
  int i;
  for (i = 0; i < 50 * 4; ++i) gates[i] = -fabsf(gates[i]);
  p.form.kind = ROPEWALK_GATES;
  p.form.log_gates = gates;
  p.form.gate_tokens = 50;
  expect_same(&p, NULL, "gates");
  p.form.log_gates = NULL;
  p.form.gate_tokens = 0;
  p.form.kind = ROPEWALK_CONTEXTUAL;
  p.form.rows = 9;
  p.form.table_heads = 4;
  p.form.position_rows = rows;
  expect_same(&p, NULL, "contextual");
  free_problem(&p);
  free(gates);
  free(rows);
}

static void wave(void* context, int64_t head, const int64_t* queries, int64_t num_queries,
                 const int64_t* keys, int64_t num_keys, float* out, int64_t stride) {
  const float* size = context;
  int64_t r, c;
  for (r = 0; r < num_queries; ++r) {
    for (c = 0; c < num_keys; ++c) {
      out[r * stride + c] =
          size[head] * (float)sin(0.1 * (double)queries[r] - 0.3 * (double)keys[c]);
    }
  }
}

static void test_pair(void) {
  float sizes[] = {1, -2, 0.5f};
  problem p = far_problem(3);
  call c;
  p.form.kind = ROPEWALK_PAIR;
  p.form.pair_bias = wave;
  p.form.pair_context = sizes;
  expect_same(&p, NULL, "pair");
  p.bidirectional = 1;
  expect_same(&p, NULL, "pair, bidirectional");
  p.form.pair_positions = 131072;
  make_call(&p, NULL, &c);
  EXPECT_REFUSED(ropewalk_attention(&c.args), "knows positions 0 to 131071");
  free_call(&c);
  free_problem(&p);
}

static void test_bad_forms(void) {
  const float x[] = {1, 2, 3, NAN};
  const int32_t row = 3;
  ropewalk_form_spec s;
  ropewalk_form* form = NULL;
  memset(&s, 0, sizeof s);
  s.size = sizeof s;
#define EXPECT_BAD(says) EXPECT_REFUSED(ropewalk_form_create(&s, &form), says)
  EXPECT_BAD("spec.kind: expected 1 to 6, got 0");
  s.kind = ROPEWALK_SLOPE;
  EXPECT_BAD("spec.heads: expected 1 to 65536, got 0");
  s.heads = 2;
  s.head_dim = 2;
  EXPECT_BAD("spec.behind: expected a pointer");
  s.behind = x + 2;
  EXPECT_BAD("SlopeForm.behind");
  s.values = x;
  EXPECT_BAD("spec.values: a form of kind 1 has none; expected 0");
  s.behind = NULL;
  s.kind = ROPEWALK_DISTANCE;
  EXPECT_BAD("DistanceForm.columns: expected 1 or more, got 0");
  s.columns = INT64_MAX;
  EXPECT_BAD("spec.values: sizes");
  s.columns = -1;
  EXPECT_BAD("spec.values: sizes");
  s.values = NULL;
  s.kind = ROPEWALK_CONTENT;
  s.columns = 1;
  s.row_of = &row;
  s.rows = 3;
  EXPECT_BAD("ContentForm.row_of: expected rows below 3, got 3");
  s.columns = 0;
  s.row_of = NULL;
  s.rows = 0;
  s.kind = ROPEWALK_PAIR;
  EXPECT_BAD("spec.pair_bias: expected a function");
  s.pair_bias = wave;
  s.pair_parameters = 1;
  EXPECT_BAD("spec.pair_gradient: expected a function where");
  s.size = sizeof s - 8;
  EXPECT_BAD("spec.size: expected sizeof");
#undef EXPECT_BAD
  EXPECT_REFUSED(ropewalk_form_create(&s, NULL), "out: expected a pointer");
}

static void test_bad_methods(void) {
  const ropewalk_parameter twice[] = {{"buckets", 8}, {"buckets", 16}}, odd[] = {{"bucket", 8}};
  const ropewalk_parameter half[] = {{"buckets", 8.5}};
  const float x[8] = {0};
  ropewalk_form* form = NULL;
  ropewalk_bias b = method("t6", 2, 10);
#define EXPECT_BAD(says) EXPECT_REFUSED(ropewalk_form_lower(&b, &form), says)
  EXPECT_BAD("bias.method: expected one of alibi, t5, kerple, sandwich; got \"t6\"");
  b.method = NULL;
  EXPECT_BAD("bias.method: expected a pointer");
  b.method = "t5";
  EXPECT_BAD("values: expected 64 for t5 of 2 heads, got 0");
  b.parameters = twice;
  b.num_parameters = 2;
  EXPECT_BAD("parameters: buckets is given twice");
  b.num_parameters = 1;
  b.parameters = odd;
  EXPECT_BAD("parameters: t5 has no bucket; it has buckets, last_distance, bidirectional");
  b.parameters = half;
  EXPECT_BAD("parameters: buckets: expected an integer from 0 to 1073741824, got 8.5");
  b = method("kerple", 2, 10);
  b.values = x;
  b.num_values = 3;
  EXPECT_BAD("values: expected 4 for kerple of 2 heads, got 3");
  b.num_values = 4;
  EXPECT_BAD("KerpleBias.r1[0]");
  b = method("alibi", 0, 10);
  EXPECT_BAD("bias.heads: expected 1 to 65536, got 0");
  b = method("alibi", 2, -1);
  EXPECT_BAD("max_distance");
#undef EXPECT_BAD
}

/* A form is made for heads of one size, and running ones for tokens. */
static void test_misfits(void) {
  float gates[] = {-1, -1};
  problem p = make_problem(2, 1, 8, 2, 3);
  ropewalk_bias b = method("alibi", 4, 10);
  call c;
  make_call(&p, &b, &c);
  EXPECT_REFUSED(ropewalk_attention(&c.args), "form: made for 4 heads of 8, expected 2 of 8");
  free_call(&c);
  b.heads = 2;
  make_call(&p, &b, &c);
  c.args.mask = ROPEWALK_BIDIRECTIONAL;
  EXPECT_REFUSED(ropewalk_attention(&c.args), "SlopeForm.ahead: expected a slope");
  free_call(&c);
  p.form.kind = ROPEWALK_GATES;
  p.form.log_gates = gates;
  p.form.gate_tokens = 1;
  make_call(&p, NULL, &c);
  EXPECT_REFUSED(ropewalk_attention(&c.args), "log_gates: expected 6 numbers");
  free_call(&c);
  free_problem(&p);
}

void test_forms(void) {
  test_alibi();
  test_tables();
  test_content();
  test_running();
  test_pair();
  test_bad_forms();
  test_bad_methods();
  test_misfits();
}
