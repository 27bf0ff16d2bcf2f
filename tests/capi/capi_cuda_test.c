/* What ropewalk.h says of CUDA on any machine: what there is, or from every call that needs it the
 * reason why there is none. */
#include "tests/capi/capi_test.h"

/* What a machine without a GPU says of every call that needs one: the same reason. */
static void test_without_gpu(const char* why) {
  ropewalk_frequencies* f = plain(32);
  ropewalk_table* table = NULL;
  ropewalk_positions at = start_at(0);
  float x[32] = {0};
  double out[17];
  int64_t bytes = 0;
  ropewalk_tensor view = tensor(x, ROPEWALK_F32, 1, 1, 32);
  ropewalk_rotate_args rotate = rotate_args(&at, &view);
  ropewalk_rerotate_args rerotate;
  ropewalk_gradient_args gradient;
  ropewalk_q8_keys q8;
#define EXPECT_NO_GPU(call) expect_refused((call), ROPEWALK_UNSUPPORTED, why, __FILE__, __LINE__)
  EXPECT_NO_GPU(ropewalk_cuda_synchronize(NULL));
  EXPECT_NO_GPU(ropewalk_table_create_cuda(f, 0, 4, ROPEWALK_EXACT, NULL, &table));
  EXPECT(table == NULL);
  view.device = ROPEWALK_CUDA;
  rotate.frequencies = f;
  EXPECT_NO_GPU(ropewalk_rotate(&rotate));
  memset(&rerotate, 0, sizeof rerotate);
  rerotate.size = sizeof rerotate;
  rerotate.layout = ROPEWALK_HALF;
  rerotate.frequencies = f;
  rerotate.keys = &view;
  rerotate.delta = 1;
  EXPECT_NO_GPU(ropewalk_rerotate(&rerotate));
  memset(&q8, 0, sizeof q8);
  q8.size = sizeof q8;
  q8.data = x;
  q8.device = ROPEWALK_CUDA;
  q8.batch = q8.tokens = q8.heads = 1;
  q8.head_dim = 32;
  rerotate.keys = NULL;
  rerotate.q8_keys = &q8;
  EXPECT_NO_GPU(ropewalk_rerotate(&rerotate));
  q8.device = -1;
  EXPECT_REFUSED(ropewalk_rerotate(&rerotate), "q8_keys.device: expected 0 to 1, got -1");
  memset(&gradient, 0, sizeof gradient);
  gradient.size = sizeof gradient;
  gradient.layout = ROPEWALK_HALF;
  gradient.frequencies = f;
  gradient.positions = &at;
  gradient.value = gradient.gradient = &view;
  EXPECT_OK(ropewalk_frequency_gradient_workspace(&gradient, &bytes));
  EXPECT(bytes > 0 && bytes <= 4096);
  EXPECT_NO_GPU(ropewalk_frequency_gradient_cuda(&gradient, out, out, NULL, NULL));
  EXPECT_REFUSED(ropewalk_frequency_gradient_cuda(&gradient, out, NULL, NULL, NULL), "out");
  EXPECT_REFUSED(ropewalk_frequency_gradient_workspace(&gradient, NULL), "bytes");
#undef EXPECT_NO_GPU
  ropewalk_frequencies_destroy(f);
}

static void test_with_gpu(const ropewalk_cuda_info* info) {
  ropewalk_frequencies* f = plain(8);
  ropewalk_table* table = NULL;
  ropewalk_positions at = start_at(7);
  const float* row = NULL;
  float q[8] = {0};
  ropewalk_tensor view = tensor(q, ROPEWALK_F32, 1, 1, 8);
  ropewalk_rotate_args args = rotate_args(&at, &view);
  EXPECT(info->devices[0].major >= 8 && info->devices[0].memory_bytes > 0);
  EXPECT(info->devices[0].name[0] != 0);
  EXPECT_OK(ropewalk_table_create_cuda(f, 7, 4, ROPEWALK_EXACT, NULL, &table));
  EXPECT_OK(ropewalk_table_grow(table, 9));
  EXPECT_OK(ropewalk_table_row(table, 15, &row));
  EXPECT(row != NULL);
  EXPECT_OK(ropewalk_cuda_synchronize(NULL));
  args.table = table;
  EXPECT_REFUSED(ropewalk_rotate(&args), "table: it lies on a GPU");
  ropewalk_table_destroy(table);
  ropewalk_frequencies_destroy(f);
}

void test_cuda(void) {
  ropewalk_frequencies* f = plain(8);
  ropewalk_table* table = NULL;
  ropewalk_cuda_info info;
  memset(&info, 0, sizeof info);
  EXPECT_REFUSED(ropewalk_cuda_find(&info), "out.size: expected sizeof");
  info.size = sizeof info;
  EXPECT_OK(ropewalk_cuda_find(&info));
  EXPECT((info.toolkit[0] != 0) == ROPEWALK_HAVE_CUDA);
  EXPECT((info.targets[0] != 0) == ROPEWALK_HAVE_CUDA);
  EXPECT((info.why_none[0] != 0) == (info.num_devices == 0));
  if (info.num_devices == 0) {
    test_without_gpu(info.why_none);
  } else {
    test_with_gpu(&info);
  }
  EXPECT_REFUSED(ropewalk_table_create_cuda(f, -1, 4, ROPEWALK_EXACT, NULL, &table), "-1");
  EXPECT_REFUSED(ropewalk_table_create_cuda(NULL, 0, 4, ROPEWALK_EXACT, NULL, &table),
                 "frequencies: expected a pointer");
  ropewalk_frequencies_destroy(f);
}
