/* ropewalk.h, compiled and used as C: every function, against formulas typed again and the golden
 * numbers of other programs; and what is refused. */
#include "tests/capi/capi_test.h"

int failures = 0;

/* YaRN of factor 4, head_dim 128, base 10000, trained at 4096: 10 digits as other programs print
 * them. */
static void test_frequencies(void) {
  const ropewalk_parameter factor = {"factor", 4}, unknown = {"fector", 4}, one = {"factor", 1};
  const ropewalk_parameter twice[] = {{"factor", 4}, {"beta_fast", 32}, {"factor", 8}};
  ropewalk_spec spec = spec_of(128);
  ropewalk_frequencies* f = NULL;
  ropewalk_frequencies_info info;
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  spec.method = "yarn";
  spec.parameters = &factor;
  spec.num_parameters = 1;
  EXPECT_OK(ropewalk_frequencies_create(&spec, 16384, &f));
  EXPECT_OK(ropewalk_frequencies_get(f, &info));
  EXPECT(info.pairs == 64 && info.axes == 1 && info.axis == NULL);
  EXPECT_NEAR(info.inv_freq[20], 5.623413252e-02, 1e-11);
  EXPECT_NEAR(info.inv_freq[32], 6.538461538e-03, 1e-12);
  EXPECT_NEAR(info.inv_freq[63], 2.886954962e-05, 1e-14);
  EXPECT_NEAR(info.inv_freq_f32[32], 6.538461538e-03, 1e-9);
  EXPECT_NEAR(info.amplitude, 1.1386294, 1e-7);
  EXPECT(info.softmax_multiplier == 1);
  ropewalk_frequencies_destroy(f);

  /* Neither a factor that is forgotten nor one of two is guessed. */
  spec.num_parameters = 0;
  EXPECT_REFUSED(ropewalk_frequencies_create(&spec, 1, &f), "yarn: factor is required and not set");
  spec.method = "llama3";
  EXPECT_REFUSED(ropewalk_frequencies_create(&spec, 1, &f), "llama3: factor is required");
  spec.method = "yarn";
  spec.parameters = twice;
  spec.num_parameters = 3;
  EXPECT_REFUSED(ropewalk_frequencies_create(&spec, 1, &f), "parameters: factor is given twice");
  spec.parameters = &one;
  spec.num_parameters = 1;
  EXPECT_OK(ropewalk_frequencies_create(&spec, 1, &f));
  ropewalk_frequencies_destroy(f);

  spec.parameters = &unknown;
  EXPECT_REFUSED(ropewalk_frequencies_create(&spec, 1, &f), "has no fector; it has factor, ");
  spec.num_parameters = 0;
  spec.method = "yarm";
  EXPECT_REFUSED(ropewalk_frequencies_create(&spec, 1, &f), "\"yarm\"");
  spec.method = NULL;
  spec.layout = 0;
  EXPECT_REFUSED(ropewalk_frequencies_create(&spec, 1, &f), "layout: expected 1 to 2");
  spec.layout = ROPEWALK_HALF;
  spec.rotary_dim = 129;
  EXPECT(ropewalk_frequencies_create(&spec, 1, &f) != ROPEWALK_OK);
  EXPECT_REFUSED(ropewalk_frequencies_create(NULL, 1, &f), "spec: expected a pointer");
  spec = spec_of(8);
  EXPECT_REFUSED(ropewalk_frequencies_create(&spec, 1, NULL), "out: expected a pointer");
}

static void test_methods_with_lists(void) {
  const double twos[] = {2, 2, 2, 2}, threes[] = {3, 3, 3, 3};
  const int64_t sections[] = {2, 1, 1};
  const ropewalk_parameter factor = {"factor", 4};
  ropewalk_xpos xpos;
  ropewalk_spec spec = spec_of(8);
  ropewalk_frequencies* f = NULL;
  ropewalk_frequencies_info info;
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  spec.method = "longrope";
  spec.factors = twos;
  spec.long_factors = threes;
  spec.num_factors = 4;
  spec.parameters = &factor;
  spec.num_parameters = 1;
  EXPECT_OK(ropewalk_frequencies_create(&spec, 4096, &f));
  EXPECT_OK(ropewalk_frequencies_get(f, &info));
  EXPECT_NEAR(info.inv_freq[1], 0.1 / 2, 1e-15);
  ropewalk_frequencies_destroy(f);
  EXPECT_OK(ropewalk_frequencies_create(&spec, 4097, &f));
  EXPECT_OK(ropewalk_frequencies_get(f, &info));
  EXPECT_NEAR(info.inv_freq[1], 0.1 / 3, 1e-15);
  ropewalk_frequencies_destroy(f);
  spec.method = "explicit";
  spec.num_parameters = 0;
  EXPECT_OK(ropewalk_frequencies_create(&spec, 4097, &f));
  EXPECT_OK(ropewalk_frequencies_get(f, &info));
  EXPECT_NEAR(info.inv_freq[1], 0.1 / 2, 1e-15);
  ropewalk_frequencies_destroy(f);
  spec.method = "none";
  EXPECT_REFUSED(ropewalk_frequencies_create(&spec, 1, &f), "only longrope and explicit");

  spec = spec_of(8);
  spec.sections = sections;
  spec.num_sections = 3;
  EXPECT_OK(ropewalk_frequencies_create(&spec, 1, &f));
  EXPECT_OK(ropewalk_frequencies_get(f, &info));
  EXPECT(info.axes == 3 && info.axis[1] == 0 && info.axis[2] == 1 && info.axis[3] == 2);
  ropewalk_frequencies_destroy(f);

  memset(&xpos, 0, sizeof xpos);
  xpos.size = sizeof xpos;
  spec = spec_of(8);
  spec.xpos = &xpos;
  EXPECT_OK(ropewalk_frequencies_create(&spec, 1, &f));
  ropewalk_frequencies_destroy(f);
}

static void test_table(void) {
  ropewalk_frequencies* f = plain(8);
  ropewalk_table* table = NULL;
  const float* row = NULL;
  const int64_t positions[] = {1048575, 3};
  float filled[2 * 8];
  int i;
  EXPECT_OK(ropewalk_table_create(f, 1048570, 4, ROPEWALK_EXACT, &table));
  EXPECT_REFUSED(ropewalk_table_row(table, 1048575, &row), "1048575 is outside");
  EXPECT_OK(ropewalk_table_grow(table, 10));
  EXPECT_OK(ropewalk_table_row(table, 1048575, &row));
  EXPECT_OK(ropewalk_fill_cos_sin(f, positions, 2, ROPEWALK_EXACT, filled));
  for (i = 0; i < 4; ++i) {
    const long double angle = 1048575.0L * powl(10.0L, -i);
    EXPECT_NEAR(row[i], (double)cosl(angle), 6e-8);
    EXPECT_NEAR(row[4 + i], (double)sinl(angle), 6e-8);
    EXPECT(filled[i] == row[i] && filled[4 + i] == row[4 + i]);
    EXPECT_NEAR(filled[8 + i], cos(3 * pow(10, -i)), 6e-8);
  }
  EXPECT_REFUSED(ropewalk_table_create(f, -1, 1, ROPEWALK_EXACT, &table), "-1");
  EXPECT_REFUSED(ropewalk_table_create(f, 0, 1, 7, &table), "precision");
  ropewalk_table_destroy(table);
  ropewalk_frequencies_destroy(f);
}

static void test_rotate(void) {
  ropewalk_frequencies* f = plain(8);
  ropewalk_table* table = NULL;
  ropewalk_positions at = start_at(1000);
  float q[2 * 2 * 8], k[2 * 8], v[2 * 8], again[2 * 2 * 8], cache[4 * 8], v_cache[4 * 8];
  float weight[8];
  const int64_t slots[] = {3, 0};
  ropewalk_tensor q_view = tensor(q, ROPEWALK_F32, 2, 2, 8), k_view = tensor(k, 1, 2, 1, 8);
  ropewalk_tensor v_view = tensor(v, ROPEWALK_F32, 2, 1, 8);
  ropewalk_tensor cache_view = tensor(cache, ROPEWALK_F32, 4, 1, 8);
  ropewalk_tensor v_cache_view = tensor(v_cache, ROPEWALK_F32, 4, 1, 8);
  ropewalk_rotate_args args = rotate_args(&at, &q_view);
  int i, t;
  for (i = 0; i < 32; ++i) q[i] = again[i] = (float)(i % 7) - 3;
  for (i = 0; i < 16; ++i) k[i] = v[i] = (float)(i % 5) - 2;
  for (i = 0; i < 32; ++i) cache[i] = v_cache[i] = 99;
  args.frequencies = f;
  args.k = &k_view;
  args.k_out = &cache_view;
  args.v = &v_view;
  args.v_out = &v_cache_view;
  args.slots = slots;
  args.num_slots = 2;
  EXPECT_OK(ropewalk_rotate(&args));
  for (t = 0; t < 2; ++t) {
    for (i = 0; i < 4; ++i) {
      const double angle = (1000 + t) * pow(10, -i), c = cos(angle), s = sin(angle);
      const float* x = again + t * 16 + 8;
      const float* key = k + t * 8;
      EXPECT_NEAR(q[t * 16 + 8 + i], x[i] * c - x[i + 4] * s, 3e-6);
      EXPECT_NEAR(q[t * 16 + 12 + i], x[i + 4] * c + x[i] * s, 3e-6);
      EXPECT_NEAR(cache[slots[t] * 8 + i], key[i] * c - key[i + 4] * s, 3e-6);
      EXPECT(v_cache[slots[t] * 8 + i] == v[t * 8 + i]);
    }
  }
  EXPECT(cache[8] == 99 && cache[23] == 99 && v_cache[8] == 99);

  /* A table gives the same bits, the inverse undoes it. */
  EXPECT_OK(ropewalk_table_create(f, 1000, 2, ROPEWALK_EXACT, &table));
  q_view.data = again;
  args = rotate_args(&at, &q_view);
  args.table = table;
  EXPECT_OK(ropewalk_rotate(&args));
  EXPECT(memcmp(q, again, sizeof q) == 0);
  args.direction = ROPEWALK_INVERSE;
  EXPECT_OK(ropewalk_rotate(&args));
  for (i = 0; i < 32; ++i) EXPECT_NEAR(again[i], (float)(i % 7) - 3, 3e-6);
  args.direction = ROPEWALK_FORWARD;

  /* With a norm in front, at position 0: the norm alone. */
  for (i = 0; i < 8; ++i) weight[i] = 2;
  at.start = 0;
  args.table = NULL;
  args.frequencies = f;
  args.q_norm_weight = weight;
  args.q_norm_eps = 1e-6;
  for (i = 0; i < 32; ++i) again[i] = 3;
  EXPECT_OK(ropewalk_rotate(&args));
  EXPECT_NEAR(again[0], 2, 1e-6);

  args.table = table;
  EXPECT_REFUSED(ropewalk_rotate(&args), "not both");
  args.frequencies = NULL;
  at.start = 5;
  EXPECT_REFUSED(ropewalk_rotate(&args), "position 5 ");
  args.q = NULL;
  EXPECT_REFUSED(ropewalk_rotate(&args), "q: expected a pointer");
  EXPECT_REFUSED(ropewalk_rotate(NULL), "args: expected a pointer");
  ropewalk_table_destroy(table);
  ropewalk_frequencies_destroy(f);
}

static void test_slots(void) {
  const int32_t table[] = {7, 2, 9};
  const int64_t first[] = {3};
  int64_t out[5];
  EXPECT_OK(ropewalk_block_table_slots(table, 3, 4, first, 1, 5, out));
  EXPECT(out[0] == 31 && out[1] == 8 && out[4] == 11);
  EXPECT_OK(ropewalk_ring_slots(4, first, 1, 3, out));
  EXPECT(out[0] == 3 && out[1] == 0 && out[2] == 1);
  EXPECT_REFUSED(ropewalk_ring_slots(0, first, 1, 3, out), "capacity");
}

static void test_rerotate(void) {
  ropewalk_frequencies* f = plain(8);
  ropewalk_positions at = start_at(131071);
  float k[8], before[8];
  ropewalk_tensor view = tensor(k, ROPEWALK_F32, 1, 1, 8);
  ropewalk_rotate_args rotate = rotate_args(&at, &view);
  ropewalk_rerotate_args args;
  const int64_t deltas[] = {-131071};
  unsigned char blocks[34];
  ropewalk_q8_keys q8;
  int i;
  for (i = 0; i < 8; ++i) k[i] = before[i] = (float)i - 3;
  rotate.frequencies = f;
  EXPECT_OK(ropewalk_rotate(&rotate));
  memset(&args, 0, sizeof args);
  args.size = sizeof args;
  args.layout = ROPEWALK_HALF;
  args.frequencies = f;
  args.keys = &view;
  args.token_deltas = deltas;
  args.num = 1;
  EXPECT_OK(ropewalk_rerotate(&args));
  for (i = 0; i < 8; ++i) EXPECT_NEAR(k[i], before[i], 3e-6);
  args.delta = 5;
  EXPECT_REFUSED(ropewalk_rerotate(&args), "expected one of delta");

  /* A Q8_0 block of ones with scale 1 (0x3c00), moved there and back. */
  memset(blocks, 1, sizeof blocks);
  blocks[0] = 0;
  blocks[1] = 0x3c;
  memset(&q8, 0, sizeof q8);
  q8.size = sizeof q8;
  q8.data = blocks;
  q8.batch = q8.tokens = q8.heads = 1;
  q8.head_dim = 32;
  args.keys = NULL;
  args.q8_keys = &q8;
  args.token_deltas = NULL;
  args.num = 0;
  args.delta = 1;
  EXPECT_OK(ropewalk_rerotate(&args));
  EXPECT(blocks[2 + 4] != 1);
  ropewalk_frequencies_destroy(f);
}

static void test_gradient(void) {
  ropewalk_frequencies* f = plain(4);
  ropewalk_positions at = start_at(7);
  double y[] = {1, 2, 3, 4}, dy[] = {5, 6, 7, 8}, gradient[2], amplitude, derivative[2];
  ropewalk_tensor y_view = tensor(y, ROPEWALK_F64, 1, 1, 4),
                  dy_view = tensor(dy, ROPEWALK_F64, 1, 1, 4);
  ropewalk_gradient_args args;
  ropewalk_spec spec = spec_of(4);
  memset(&args, 0, sizeof args);
  args.size = sizeof args;
  args.frequencies = f;
  args.positions = &at;
  args.value = &y_view;
  args.gradient = &dy_view;
  args.layout = ROPEWALK_HALF;
  EXPECT_OK(ropewalk_frequency_gradient(&args, gradient, &amplitude));
  EXPECT(gradient[0] == 7 * (1 * 7 - 3 * 5));
  EXPECT(gradient[1] == 7 * (2 * 8 - 4 * 6));
  EXPECT(amplitude == 1 * 5 + 2 * 6 + 3 * 7 + 4 * 8);
  EXPECT_OK(ropewalk_base_derivative(&spec, 1, derivative));
  EXPECT(derivative[0] == 0);
  EXPECT_NEAR(derivative[1], -0.5 / 10000 * 0.01, 1e-18);
  ropewalk_frequencies_destroy(f);
}

static void test_positions(void) {
  ropewalk_position_rule rule;
  ropewalk_position_builder* builder = NULL;
  ropewalk_token_positions info;
  int64_t values[3 * 9];
  const int64_t want_w[] = {0, 1, 2, 3, 4, 3, 4, 5, 6};
  memset(&rule, 0, sizeof rule);
  rule.size = sizeof rule;
  rule.rule = ROPEWALK_RULE_QWEN2_VL;
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  EXPECT_OK(ropewalk_position_builder_create(&rule, &builder));
  EXPECT_OK(ropewalk_position_builder_text(builder, 3));
  EXPECT_OK(ropewalk_position_builder_image(builder, 4, 4));
  EXPECT_OK(ropewalk_position_builder_text(builder, 2));
  EXPECT_OK(ropewalk_position_builder_get(builder, &info, NULL, 0));
  EXPECT(info.axes == 3 && info.tokens == 9 && info.next == 7 && info.denominator == 1);
  EXPECT_OK(ropewalk_position_builder_get(builder, &info, values, 27));
  EXPECT(memcmp(values + 18, want_w, sizeof want_w) == 0);
  EXPECT_REFUSED(ropewalk_position_builder_get(builder, &info, values, 26), "room for 26 of 27");
  EXPECT_REFUSED(ropewalk_position_builder_image(builder, 3, 4), "multiple of spatial_merge");
  EXPECT_OK(ropewalk_position_builder_video(builder, 2, 2, 2, 1));
  ropewalk_position_builder_destroy(builder);
  rule.rule = ROPEWALK_RULE_QWEN3_VL;
  EXPECT_OK(ropewalk_position_builder_create(&rule, &builder));
  EXPECT_OK(ropewalk_position_builder_timestamped_video(builder, want_w + 1, 2, 2, 4));
  EXPECT_OK(ropewalk_position_builder_get(builder, &info, NULL, 0));
  EXPECT(info.tokens == 1 + 2 + 2 + 2);
  ropewalk_position_builder_destroy(builder);
}

/* Keys and values into a cache of 8-bit floats. */
static void test_8_bit_cache(void) {
  ropewalk_frequencies* f = plain(8);
  ropewalk_positions at = start_at(0);
  float q[8], k[8], v[8];
  unsigned char k_cache[8], v_cache[8];
  ropewalk_tensor q_view = tensor(q, ROPEWALK_F32, 1, 1, 8);
  ropewalk_tensor k_view = tensor(k, ROPEWALK_F32, 1, 1, 8);
  ropewalk_tensor v_view = tensor(v, ROPEWALK_F32, 1, 1, 8);
  ropewalk_tensor k_out = tensor(k_cache, ROPEWALK_F8_E4M3, 1, 1, 8);
  ropewalk_tensor v_out = tensor(v_cache, ROPEWALK_F8_E4M3, 1, 1, 8);
  ropewalk_rotate_args args = rotate_args(&at, &q_view);
  int i;
  for (i = 0; i < 8; ++i) q[i] = k[i] = v[i] = (float)i;
  args.frequencies = f;
  args.k = &k_view;
  args.v = &v_view;
  args.k_out = &k_out;
  args.v_out = &v_out;
  args.k_scale = 0.25f;
  EXPECT_OK(ropewalk_rotate(&args));
  /* 3 / 0.25 = 1.5 * 2^3; 3 = 1.5 * 2^1: exponent + 7 above three bits of mantissa. */
  EXPECT(k_cache[3] == ((3 + 7) << 3 | 4) && v_cache[3] == ((1 + 7) << 3 | 4));
  EXPECT(k_cache[0] == 0 && k_cache[1] == (2 + 7) << 3);
  q_view.dtype = ROPEWALK_F8_E4M3;
  EXPECT_REFUSED(ropewalk_rotate(&args), "f8_e4m3");
  q_view.dtype = 5;
  EXPECT_REFUSED(ropewalk_rotate(&args), "dtype: expected 0 to 4, got 5");
  q_view.dtype = ROPEWALK_F32;
  q_view.device = 2;
  EXPECT_REFUSED(ropewalk_rotate(&args), "device: expected 0 to 1, got 2");
  ropewalk_frequencies_destroy(f);
}

/* A struct of a later version: accepted while what it adds is zero. */
static void test_sizes(void) {
  struct {
    ropewalk_spec spec;
    int64_t added;
  } later;
  ropewalk_frequencies* f = NULL;
  memset(&later, 0, sizeof later);
  later.spec = spec_of(8);
  later.spec.size = sizeof later;
  EXPECT_OK(ropewalk_frequencies_create(&later.spec, 1, &f));
  ropewalk_frequencies_destroy(f);
  later.added = 1;
  EXPECT_REFUSED(ropewalk_frequencies_create(&later.spec, 1, &f), "does not know is set");
  later.spec.size = 8;
  EXPECT_REFUSED(ropewalk_frequencies_create(&later.spec, 1, &f), "spec.size: expected sizeof");
}

int main(void) {
  EXPECT(strlen(ropewalk_version()) >= 5);
  EXPECT(strcmp(ropewalk_last_error(), "") == 0);
  test_frequencies();
  test_methods_with_lists();
  test_table();
  test_rotate();
  test_slots();
  test_rerotate();
  test_gradient();
  test_positions();
  test_8_bit_cache();
  test_cuda();
  test_sizes();
  test_older_headers();
  test_huge_sizes();
  ropewalk_frequencies_destroy(NULL);
  ropewalk_table_destroy(NULL);
  ropewalk_position_builder_destroy(NULL);
  if (failures > 0) fprintf(stderr, "%d failures\n", failures);
  return failures > 0;
}
