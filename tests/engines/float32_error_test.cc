// How far float32 angles are from the exact ones, against the same arithmetic typed again with
// numpy (tests/golden/analysis_make.py) and against printed values of other programs.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/engines/support.h"

namespace ropewalk {
namespace float32_error_test {

using nlohmann::json;

const json& Golden() {
  static const json golden = [] {
    std::ifstream file(ROPEWALK_SOURCE_DIR "/tests/golden/analysis.json");
    return json::parse(file);
  }();
  return golden;
}

RotarySpec Spec(double base, int64_t d) { return Spec(base, d, 0, NoScaling{}); }

TEST(Float32Error, IsWhatNumpyEmulates) {
  for (const json& c : Golden()["float32"]) {
    const RotarySpec spec = Spec(c["base"], c["d"]);
    const Float32Error e = Float32AngleError(spec, Resolve(spec, 1), c["position"]);
    EXPECT_DOUBLE_EQ(e.rounded_once.radians, c["rounded_once"]["radians"].get<double>()) << c;
    ASSERT_TRUE(e.ggml_cpu && e.ggml_cuda);
    EXPECT_DOUBLE_EQ(e.ggml_cpu->radians, c["ggml_cpu"]["radians"].get<double>()) << c;
    EXPECT_DOUBLE_EQ(e.ggml_cuda->radians, c["ggml_cuda"]["radians"].get<double>()) << c;
    // PyTorch's pow is not always the nearest float32, so its error may be larger or smaller than
    // with one that is; it stays within what two more roundings of the frequency add.
    EXPECT_LE(e.hugging_face.radians, c["hugging_face_pow_rounded_once"]["radians"].get<double>() +
                                          c["position"].get<double>() * 0x1p-22);
  }
}

// The printed values of the comparison of engines (two digits).
TEST(Float32Error, IsWhatWasMeasuredElsewhere) {
  const RotarySpec near = Spec(500000, 128);
  const Float32Error at_128k = Float32AngleError(near, Resolve(near, 1), 131071);
  EXPECT_NEAR(at_128k.rounded_once.radians, 2.8e-3, 0.05e-3);
  EXPECT_NEAR(at_128k.ggml_cpu->radians, 4.2e-3, 0.05e-3);
  EXPECT_NEAR(at_128k.ggml_cuda->radians, 7.0e-3, 0.05e-3);
  const RotarySpec far = Spec(1e7, 128);
  EXPECT_NEAR(Float32AngleError(far, Resolve(far, 1), 1000000).ggml_cpu->radians, 3.0e-2, 0.05e-2);
}

TEST(Float32Error, KnowsWhichMethodsGgmlHas) {
  const auto has = [](const Scaling& scaling) {
    const RotarySpec spec = Spec(10000, 128, 4096, scaling);
    return Float32AngleError(spec, Resolve(spec, 8192), 8191).ggml_cpu.has_value();
  };
  EXPECT_TRUE(has(LinearScaling{2}));
  EXPECT_TRUE(has(YarnScaling{.factor = 2}));
  EXPECT_TRUE(has(Llama3Scaling{2}));
  EXPECT_FALSE(has(DynamicNtkScaling{2}));
  EXPECT_FALSE(has(YarnScaling{.factor = 2, .truncate = false}));
}

// ggml's kernels compute the same angles as the exact formula but for rounding: a wrong ramp or
// divisor would be off by radians.
TEST(Float32Error, GgmlStaysNearTheExactAngle) {
  for (const Scaling& scaling :
       {Scaling(LinearScaling{8}), Scaling(YarnScaling{.factor = 8}), Scaling(Llama3Scaling{8}),
        Scaling(ExplicitScaling{std::vector<double>(64, 3.0)})}) {
    const RotarySpec spec = Spec(500000, 128, 8192, scaling);
    const Frequencies f = Resolve(spec, 65536);
    for (const int64_t position : {0, 1, 255, 256, 257, 8191, 8192, 8193, 32768, 131071, 1048575}) {
      const Float32Error e = Float32AngleError(spec, f, position);
      const double limit = static_cast<double>(position) * 64 * 0x1p-24;
      EXPECT_LE(e.ggml_cpu->radians, limit) << Describe(scaling) << " " << position;
      EXPECT_LE(e.ggml_cuda->radians, limit) << Describe(scaling) << " " << position;
      EXPECT_LE(e.hugging_face.radians, limit) << Describe(scaling) << " " << position;
    }
  }
}

}  // namespace float32_error_test
}  // namespace ropewalk
