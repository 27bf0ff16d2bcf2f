/* Sizes that no memory has: refused with what was expected, never a failure within. */
#include "tests/capi/capi_test.h"

static void test_lists(void) {
  ropewalk_spec spec = spec_of(8);
  ropewalk_frequencies *f = NULL, *given = plain(8);
  const int64_t sections[] = {2, 2};
  const double factors[] = {1, 1, 1, 1};
  const int64_t sizes[] = {INT64_MAX, INT64_C(1) << 62, INT64_C(1) << 61};
  float row[8];
  size_t i;
  spec.trained_length = -1;
  EXPECT_REFUSED(ropewalk_frequencies_create(&spec, 1, &f),
                 "trained_length: expected 0 (not known) to 2^53 tokens, got -1");
  spec.trained_length = INT64_MAX;
  EXPECT_REFUSED(ropewalk_frequencies_create(&spec, 1, &f), "to 2^53 tokens, got 922");
  spec.trained_length = 0;
  for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    spec.sections = sections;
    spec.num_sections = sizes[i];
    EXPECT_REFUSED(ropewalk_frequencies_create(&spec, 1, &f),
                   "sections: expected at most 1152921504606846975 elements, got ");
    spec.sections = NULL;
    spec.num_sections = 0;
    spec.method = "explicit";
    spec.factors = factors;
    spec.num_factors = sizes[i];
    EXPECT_REFUSED(ropewalk_frequencies_create(&spec, 1, &f), "factors: expected at most ");
    spec.method = NULL;
    spec.num_factors = 0;
    EXPECT_REFUSED(ropewalk_fill_cos_sin(given, sections, sizes[i], ROPEWALK_EXACT, row),
                   "positions: expected at most ");
  }
  ropewalk_frequencies_destroy(given);
}

static void test_keys(void) {
  ropewalk_frequencies* f = plain(32);
  char blocks[2 * 34] = {0};
  float x[2 * 32] = {0};
  ropewalk_tensor keys = tensor(x, ROPEWALK_F32, 2, 1, 32);
  ropewalk_rerotate_args a;
  ropewalk_q8_keys q8;
  memset(&q8, 0, sizeof q8);
  q8.size = sizeof q8;
  q8.data = blocks;
  q8.batch = q8.heads = 1;
  q8.tokens = 2;
  q8.head_dim = 32;
  memset(&a, 0, sizeof a);
  a.size = sizeof a;
  a.frequencies = f;
  a.layout = ROPEWALK_HALF;
  a.delta = 1;
  a.keys = &keys;
  keys.shape[0] = INT64_MAX;
  EXPECT_REFUSED(ropewalk_rerotate(&a), "keys: expected 0 to 2^53 tokens, got a batch of 1 of 922");
  a.keys = NULL;
  a.q8_keys = &q8;
  EXPECT_OK(ropewalk_rerotate(&a));
  q8.tokens = INT64_MAX;
  EXPECT_REFUSED(ropewalk_rerotate(&a), "[1, 9223372036854775807, 1, 1, 34] overflows int64");
  q8.tokens = 2;
  q8.heads = INT64_C(1) << 62;
  EXPECT_REFUSED(ropewalk_rerotate(&a), "overflows int64");
  q8.heads = 1;
  a.first_dim = INT64_MAX;
  EXPECT_REFUSED(ropewalk_rerotate(&a), "from first_dim 9223372036854775807 on do not lie");
  ropewalk_frequencies_destroy(f);
}

/* Tokens of no heads have no memory: any number of them is done at once. */
static void test_no_heads(void) {
  ropewalk_frequencies* f = plain(8);
  float x[8];
  ropewalk_positions from_0 = start_at(0);
  ropewalk_tensor q = tensor(x, ROPEWALK_F32, INT64_MAX, 0, 8);
  ropewalk_rotate_args a = rotate_args(&from_0, &q);
  a.frequencies = f;
  EXPECT_OK(ropewalk_rotate(&a));
  ropewalk_frequencies_destroy(f);
}

void test_huge_sizes(void) {
  test_lists();
  test_keys();
  test_no_heads();
}
