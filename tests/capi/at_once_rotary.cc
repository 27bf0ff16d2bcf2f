// Frequencies, tables, positions, and what a GPU would do, by several threads at once.
#include <memory>

#include "tests/capi/at_once.h"
#include "tests/capi/capi_test.h"

namespace ropewalk::at_once {
namespace {

constexpr int64_t kDim = 64, kPairs = kDim / 2;

// Every caller has a base of its own.
ropewalk_spec SpecOf(const Caller& caller) {
  ropewalk_spec spec = spec_of(kDim);
  spec.base = 10000 + 1000 * caller.index();
  return spec;
}

void KeepFrequencies(Caller& caller, const ropewalk_frequencies* f) {
  auto info = Sized<ropewalk_frequencies_info>();
  WORKS(ropewalk_frequencies_get, f, &info);
  caller.Keep(&info.amplitude, 1);
  caller.Keep(info.inv_freq, info.pairs);
  caller.Keep(info.inv_freq_f32, info.pairs);
}

void OwnTable(Caller& caller) {
  const ropewalk_spec spec = SpecOf(caller);
  ropewalk_frequencies* f = nullptr;
  ropewalk_table* table = nullptr;
  const float* row = nullptr;
  const int64_t first = 131071 + caller.index();
  WORKS(ropewalk_frequencies_create, &spec, 4096, &f);
  KeepFrequencies(caller, f);
  std::vector<double> derivative(kPairs);
  WORKS(ropewalk_base_derivative, &spec, 4096, derivative.data());
  caller.Keep(derivative);
  WORKS(ropewalk_table_create, f, first, 600, ROPEWALK_EXACT, &table);
  WORKS(ropewalk_table_grow, table, 1300);
  WORKS(ropewalk_table_row, table, first + 1299, &row);
  caller.Keep(row, 2 * kPairs);
  CALL(ropewalk_table_destroy, table);
  CALL(ropewalk_frequencies_destroy, f);
}

void SharedTable(Caller& caller, const ropewalk_frequencies* f, const ropewalk_table* table) {
  KeepFrequencies(caller, f);
  const float* row = nullptr;
  WORKS(ropewalk_table_row, table, 255 + caller.index(), &row);
  caller.Keep(row, 2 * kPairs);
  CALL(ropewalk_table_row, table, 5000 + caller.index(), &row);  // which it does not hold
  std::vector<int64_t> positions(700);
  for (size_t i = 0; i < positions.size(); ++i) {
    positions[i] = 1048575 + static_cast<int64_t>(i) * (caller.index() + 1);
  }
  std::vector<float> rows(positions.size() * 2 * kPairs);
  for (const int32_t precision : {ROPEWALK_EXACT, ROPEWALK_FLOAT32}) {
    WORKS(ropewalk_fill_cos_sin, f, positions.data(), static_cast<int64_t>(positions.size()),
          precision, rows.data());
    caller.Keep(rows);
  }
}

void KeepPositions(Caller& caller, const ropewalk_position_builder* builder) {
  auto info = Sized<ropewalk_token_positions>();
  WORKS(ropewalk_position_builder_get, builder, &info, nullptr, 0);
  std::vector<int64_t> values(static_cast<size_t>(info.axes * info.tokens));
  WORKS(ropewalk_position_builder_get, builder, &info, values.data(),
        static_cast<int64_t>(values.size()));
  caller.Keep(values);
  caller.Keep(&info.next, 1);
}

void OwnPositions(Caller& caller) {
  auto rule = Sized<ropewalk_position_rule>();
  ropewalk_position_builder* builder = nullptr;
  const int64_t stamps[] = {3, 4};
  for (const int32_t of : {ROPEWALK_RULE_QWEN2_VL, ROPEWALK_RULE_QWEN3_VL}) {
    rule.rule = of;
    rule.start = caller.index();
    WORKS(ropewalk_position_builder_create, &rule, &builder);
    WORKS(ropewalk_position_builder_text, builder, 30 + caller.index());
    WORKS(ropewalk_position_builder_image, builder, 8, 2 + 2 * caller.index());
    CALL(ropewalk_position_builder_video, builder, 4, 4, 6, 1.0);  // each rule takes one of the two
    CALL(ropewalk_position_builder_timestamped_video, builder, stamps, 2, 4, 6);
    KeepPositions(caller, builder);
    CALL(ropewalk_position_builder_destroy, builder);
  }
}

// Without a GPU each call says why; with one these are refused, because the tensors are not there.
void Gpu(Caller& caller, const ropewalk_frequencies* f) {
  auto info = Sized<ropewalk_cuda_info>();
  WORKS(ropewalk_cuda_find, &info);
  for (const char* text : {info.toolkit, info.targets, info.driver, info.why_none}) {
    caller.Keep(std::string(text));
  }
  for (int64_t i = 0; i < info.num_devices; ++i) caller.Keep(std::string(info.devices[i].name));
  CALL(ropewalk_cuda_synchronize, nullptr);
  ropewalk_table* table = nullptr;
  CALL(ropewalk_table_create_cuda, f, 0, 64, ROPEWALK_EXACT, nullptr, &table);
  CALL(ropewalk_table_destroy, table);
  std::vector<float> x = caller.Numbers(kDim, 1);
  const ropewalk_positions at = start_at(caller.index());
  ropewalk_tensor view = tensor(x.data(), ROPEWALK_F32, 1, 1, kDim);
  auto args = Sized<ropewalk_gradient_args>();
  args.frequencies = f;
  args.positions = &at;
  args.value = args.gradient = &view;
  args.layout = ROPEWALK_HALF;
  double out[kPairs + 2] = {};
  int64_t bytes = 0;
  view.device = ROPEWALK_CUDA;
  WORKS(ropewalk_frequency_gradient_workspace, &args, &bytes);
  view.device = ROPEWALK_CPU;
  caller.Keep(&bytes, 1);
  CALL(ropewalk_frequency_gradient_cuda, &args, out, out, nullptr, nullptr);
}

}  // namespace

std::vector<Case> RotaryCases() {
  const std::shared_ptr<ropewalk_frequencies> f(plain(kDim), ropewalk_frequencies_destroy);
  ropewalk_table* made = nullptr;
  EXPECT_OK(ropewalk_table_create(f.get(), 0, 4096, ROPEWALK_EXACT, &made));
  const std::shared_ptr<ropewalk_table> table(made, ropewalk_table_destroy);
  auto rule = Sized<ropewalk_position_rule>();
  rule.rule = ROPEWALK_RULE_QWEN2_5_VL;
  ropewalk_position_builder* builder = nullptr;
  EXPECT_OK(ropewalk_position_builder_create(&rule, &builder));
  EXPECT_OK(ropewalk_position_builder_text(builder, 100));
  EXPECT_OK(ropewalk_position_builder_image(builder, 16, 16));
  const std::shared_ptr<ropewalk_position_builder> positions(builder,
                                                             ropewalk_position_builder_destroy);
  return {{"own table", OwnTable},
          {"shared table", [=](Caller& caller) { SharedTable(caller, f.get(), table.get()); }},
          {"own positions", OwnPositions},
          {"shared positions", [=](Caller& caller) { KeepPositions(caller, positions.get()); }},
          {"gpu", [=](Caller& caller) { Gpu(caller, f.get()); }}};
}

}  // namespace ropewalk::at_once
