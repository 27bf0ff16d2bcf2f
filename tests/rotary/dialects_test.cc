// Every disagreement between implementations, both sides, by the numbers that the implementations'
// own sources give (formulas typed into a plain double-precision script, independent of this code).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/frequencies.h"
#include "tests/support/tolerances.h"

namespace ropewalk {
namespace dialects_test {

using ::testing::HasSubstr;

RotarySpec Spec(int64_t dim, double base, int64_t trained, Scaling scaling,
                Dialect dialect = Dialect::kNative) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = dim;
  spec.base = base;
  spec.trained_length = trained;
  spec.scaling = std::move(scaling);
  spec.dialect = dialect;
  return spec;
}

double F(const RotarySpec& spec, std::size_t i, int64_t length = 1) {
  return Resolve(spec, length).inv_freq[i].hi;
}

void ExpectPrinted(double got, double printed, double digits = tolerances::kPrintedFrequency) {
  EXPECT_NEAR(got / printed, 1, digits) << got << " " << printed;
}

TEST(Dialects, NamesRoundTrip) {
  for (const char* name : {"native", "paper", "hf", "vllm", "llamacpp", "megatron", "yarn_repo"}) {
    EXPECT_STREQ(Name(ParseDialect(name)), name);
  }
  try {
    ParseDialect("ggml");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("llamacpp"));
    EXPECT_THAT(e.what(), HasSubstr("ggml"));
  }
}

// d = 128, b = 1e4, L = 4096, s = 4, pairs 1, 20, 21, 24, 32, 40, 45, 46, 63.
TEST(Dialects, NtkFamilyGoldens) {
  const std::size_t pairs[] = {1, 20, 21, 24, 32, 40, 45, 46, 63};
  const double fixed[] = {8.292502770e-01, 3.568198985e-02, 3.023722127e-02,
                          1.840010562e-02, 4.892860310e-03, 1.301083946e-03,
                          5.685509391e-04, 4.817948949e-04, 2.886954962e-05};
  const double mixed[] = {7.811809130e-01, 3.083065281e-02, 2.613455388e-02,
                          1.594111209e-02, 4.301847613e-03, 1.171886228e-03,
                          5.218272163e-04, 4.440018243e-04, 2.886954962e-05};
  for (std::size_t n = 0; n < std::size(pairs); ++n) {
    ExpectPrinted(F(Spec(128, 1e4, 4096, NtkFixedScaling{4}), pairs[n]), fixed[n]);
    ExpectPrinted(F(Spec(128, 1e4, 4096, NtkMixedScaling{4}), pairs[n]), mixed[n]);
  }
  EXPECT_NEAR(F(Spec(128, 1e4, 4096, NtkFixedScaling{4}), 0), 0.97857, 1e-5);
  EXPECT_EQ(F(Spec(128, 1e4, 4096, NtkScaling{4}), 0), 1);
  // An exponent of 1 is the fixed form.
  ExpectPrinted(F(Spec(128, 1e4, 4096, NtkMixedScaling{4, 1}), 40), fixed[5]);
}

// The base that a frequency of pair 1 belongs to.
double BaseOf(const RotarySpec& spec, int64_t length) {
  return std::pow(F(spec, 1, length), -static_cast<double>(spec.rotary_dim) / 2);
}

// Hugging Face follows the sequence; vLLM, until its pull request 41277, used s L for all.
TEST(Dialects, DynamicNtkLength) {
  const RotarySpec native = Spec(128, 1e4, 4096, DynamicNtkScaling{2});
  const int64_t lengths[] = {4096, 4097, 6000, 8192, 16384};
  const double bases[] = {10000, 10004.960337, 19499.277641, 30527.736749, 72195.860087};
  for (std::size_t n = 0; n < std::size(lengths); ++n) {
    ExpectPrinted(BaseOf(native, lengths[n]), bases[n], 1e-10);
    for (const Dialect same : {Dialect::kHuggingFace, Dialect::kYarnRepo, Dialect::kPaper}) {
      EXPECT_EQ(F(Spec(128, 1e4, 4096, DynamicNtkScaling{2}, same), 63, lengths[n]),
                F(native, 63, lengths[n]));
    }
    const RotarySpec vllm = Spec(128, 1e4, 4096, DynamicNtkScaling{2}, Dialect::kVllm);
    ExpectPrinted(BaseOf(vllm, lengths[n]), 30527.736749, 1e-10);
  }
  ExpectPrinted(BaseOf(Spec(128, 1e4, 4096, DynamicNtkScaling{4}, Dialect::kVllm), 1),
                135401.973042, 1e-10);
  // A long prompt leaves nothing behind for the short one after it.
  EXPECT_EQ(F(native, 63, 100), F(Spec(128, 1e4, 4096, NoScaling{}), 63));
  // Shorter than trained: no scaling, never the power of a negative number (s 512 / 2048 - 1 =
  // -0.5).
  EXPECT_EQ(F(Spec(128, 1e4, 2048, DynamicNtkScaling{2}), 63, 512),
            F(Spec(128, 1e4, 2048, NoScaling{}), 63, 512));
}

// Qwen's steps meet dynamic NTK with s = 2 where the sequence has doubled.
TEST(Dialects, QwenSteps) {
  const RotarySpec qwen = Spec(128, 1e4, 4096, QwenNtkScaling{});
  for (const int64_t length : {1, 4095, 4096}) ExpectPrinted(BaseOf(qwen, length), 10000, 1e-12);
  for (const int64_t length : {4097, 6000, 8191, 8192}) {
    ExpectPrinted(BaseOf(qwen, length), 30527.736749, 1e-10);
  }
  EXPECT_EQ(F(qwen, 40, 8193), F(Spec(128, 1e4, 4096, NtkScaling{7}), 40));
  EXPECT_EQ(F(qwen, 40, 16384), F(qwen, 40, 8193));
  EXPECT_EQ(F(qwen, 40, 16385), F(Spec(128, 1e4, 4096, NtkScaling{15}), 40));
}

// TransformerEngine divides by s up to s L and by length / L beyond; the yarn repository by length
// / L.
TEST(Dialects, DynamicLinear) {
  const auto divisor = [](Dialect dialect, int64_t length) {
    return 1 / F(Spec(128, 1e4, 4096, DynamicLinearScaling{4}, dialect), 0, length);
  };
  EXPECT_DOUBLE_EQ(divisor(Dialect::kMegatron, 100), 4);
  EXPECT_DOUBLE_EQ(divisor(Dialect::kMegatron, 16384), 4);
  EXPECT_NEAR(divisor(Dialect::kMegatron, 16385), 4.000244, 5e-7);
  EXPECT_DOUBLE_EQ(divisor(Dialect::kYarnRepo, 100), 1);
  EXPECT_DOUBLE_EQ(divisor(Dialect::kYarnRepo, 6144), 1.5);
}

// Three methods go by the name of NTK-by-parts.
TEST(Dialects, ByPartsHasThreeMeanings) {
  ExpectPrinted(F(Spec(128, 1e4, 4096, ByPartsScaling{4}), 32), 3.835238662e-03);
  ExpectPrinted(F(Spec(128, 1e4, 4096, YarnScaling{4}, Dialect::kPaper), 32), 3.835238662e-03);
  ExpectPrinted(F(Spec(128, 1e4, 4096, ByPartsRepoScaling{4}), 32), 7.788564305e-03);
  ExpectPrinted(F(Spec(128, 1e4, 4096, YarnScaling{4}), 32), 6.538461538e-03);
  // Llama 2 with s = 16: code against paper, 3 times apart.
  ExpectPrinted(F(Spec(128, 1e4, 4096, YarnScaling{16}), 38), 1.479993e-3, 1e-6);
  ExpectPrinted(F(Spec(128, 1e4, 4096, YarnScaling{16}, Dialect::kPaper), 38), 4.866131e-4, 1e-6);
}

// gpt-oss asks for a ramp that is not rounded; ggml has no such key and rounds.
TEST(Dialects, YarnTruncate) {
  YarnScaling yarn{32};
  yarn.truncate = false;
  const auto f = [&](Dialect dialect, std::size_t i) {
    return F(Spec(64, 150000, 4096, yarn, dialect), i);
  };
  for (const Dialect d :
       {Dialect::kNative, Dialect::kHuggingFace, Dialect::kVllm, Dialect::kMegatron}) {
    ExpectPrinted(f(d, 8), 5.081327481546e-02, 1e-12);
    ExpectPrinted(f(d, 9), 3.170569618466e-02, 1e-12);
    ExpectPrinted(f(d, 12), 6.794959489732e-03, 1e-12);
    ExpectPrinted(f(d, 17), 1.293187012451e-04, 1e-12);
    ExpectPrinted(f(d, 18), 3.830881237375e-05, 1e-12);
  }
  for (const Dialect d : {Dialect::kLlamaCpp, Dialect::kYarnRepo}) {
    EXPECT_NEAR(f(d, 17), 2.279e-4, 5e-8);
    EXPECT_NEAR(f(d, 12) / f(Dialect::kNative, 12), 1.032, 5e-4);
  }
}

// beta_fast 1 and beta_slow 32: a reversed ramp from pair 21 to 45, or in ggml a step the other
// way.
TEST(Dialects, YarnSwappedBetas) {
  YarnScaling yarn{4};
  yarn.beta_fast = 1;
  yarn.beta_slow = 32;
  const auto ratio = [&](Dialect dialect, std::size_t i) {
    return F(Spec(128, 1e4, 4096, NoScaling{}), i) / F(Spec(128, 1e4, 4096, yarn, dialect), i);
  };
  EXPECT_THROW((void)ratio(Dialect::kNative, 0), Error);
  EXPECT_DOUBLE_EQ(ratio(Dialect::kHuggingFace, 0), 4);
  EXPECT_DOUBLE_EQ(ratio(Dialect::kHuggingFace, 63), 1);
  EXPECT_DOUBLE_EQ(ratio(Dialect::kHuggingFace, 21), 4);
  EXPECT_LT(ratio(Dialect::kHuggingFace, 22), 4);
  EXPECT_DOUBLE_EQ(ratio(Dialect::kHuggingFace, 33), 1.6);  // halfway: 1 / (0.5 / 4 + 0.5)
  EXPECT_GT(ratio(Dialect::kHuggingFace, 44), 1);
  EXPECT_DOUBLE_EQ(ratio(Dialect::kHuggingFace, 45), 1);
  EXPECT_DOUBLE_EQ(ratio(Dialect::kLlamaCpp, 0), 1);
  EXPECT_DOUBLE_EQ(ratio(Dialect::kLlamaCpp, 63), 4);
}

double Amplitude(const YarnScaling& yarn, Dialect dialect) {
  return Resolve(Spec(64, 1e4, 4096, yarn, dialect), 1).amplitude;
}

TEST(Dialects, YarnAmplitude) {
  // mscale without mscale_all_dim: Hugging Face falls to its default, vLLM and Megatron use it.
  YarnScaling half{40};
  half.mscale = 0.707;
  EXPECT_NEAR(Amplitude(half, Dialect::kHuggingFace), 1.3688879454, 5e-11);
  EXPECT_NEAR(Amplitude(half, Dialect::kVllm), 1.2608038, 5e-8);
  EXPECT_NEAR(Amplitude(half, Dialect::kMegatron), 1.2608038, 5e-8);
  EXPECT_NEAR(Amplitude(half, Dialect::kLlamaCpp), 1.3688879454, 5e-11);
  // attention_factor 1.0: dropped by vLLM before its pull request 46280 and by llama.cpp.
  YarnScaling one{64};
  one.attention_factor = 1;
  EXPECT_EQ(Amplitude(one, Dialect::kHuggingFace), 1);
  EXPECT_NEAR(Amplitude(one, Dialect::kVllm), 1.4158883083, 5e-11);
  EXPECT_NEAR(Amplitude(one, Dialect::kLlamaCpp), 1.4158883083, 5e-11);
  // attn_factor multiplies where it is read.
  YarnScaling twice{16};
  twice.attn_factor = 2;
  EXPECT_NEAR(Amplitude(twice, Dialect::kYarnRepo), 2 * 1.2772588722, 1e-10);
  EXPECT_NEAR(Amplitude(twice, Dialect::kVllm), 2 * 1.2772588722, 1e-10);
  EXPECT_NEAR(Amplitude(twice, Dialect::kHuggingFace), 1.2772588722, 5e-11);
  // mscale_all_dim alone: llama.cpp assumes mscale 1.
  YarnScaling all{40};
  all.mscale = all.mscale_all_dim = 0.5;
  EXPECT_EQ(Amplitude(all, Dialect::kHuggingFace), 1);
  EXPECT_NEAR(Amplitude(all, Dialect::kLlamaCpp),
              (0.1 * std::log(40.0) + 1) / (0.05 * std::log(40.0) + 1), 1e-12);
}

// DeepSeek multiplies the scores as well: V3 (1, 1) and V2 (0.707, 0.707), s = 40.
TEST(Dialects, DeepSeekSoftmax) {
  for (const auto& [m, softmax] : {std::pair{1.0, 1.8738542}, std::pair{0.707, 1.5896262}}) {
    YarnScaling yarn{40};
    yarn.mscale = yarn.mscale_all_dim = m;
    yarn.softmax_mscale = true;
    for (const Dialect d : {Dialect::kNative, Dialect::kHuggingFace, Dialect::kVllm,
                            Dialect::kMegatron, Dialect::kLlamaCpp}) {
      const Frequencies f = Resolve(Spec(64, 1e4, 4096, yarn, d), 1);
      EXPECT_EQ(f.amplitude, 1);
      EXPECT_NEAR(f.softmax_multiplier, softmax, 5e-8);
    }
  }
}

// vLLM gives M-RoPE's cache length, 4 L, to the correction range.
TEST(Dialects, MropeYarnRangeOfVllm) {
  RotarySpec spec = Spec(128, 1e6, 32768, YarnScaling{4}, Dialect::kHuggingFace);
  spec.axes.sections = {16, 24, 24};
  const double right = F(spec, 35);
  spec.dialect = Dialect::kVllm;
  EXPECT_NEAR(F(spec, 35) / right, 1.66, 5e-3);
  spec.axes = {};
  EXPECT_EQ(F(spec, 35), right);
}

TEST(Dialects, Llama3) {
  const Llama3Scaling llama{8, 1, 4};
  const auto f = [&](Dialect d, int64_t trained, std::size_t i) {
    return F(Spec(128, 5e5, trained, llama, d), i);
  };
  const std::size_t pairs[] = {28, 29, 32, 34, 35};
  const double golden[] = {3.211445994753e-03, 2.166570763503e-03, 5.248461609930e-04,
                           1.785078127680e-04, 9.556212353965e-05};
  const double divisors[] = {1, 1.20748387, 2.69452969, 5.25732659, 8};
  for (std::size_t n = 0; n < std::size(pairs); ++n) {
    for (const Dialect d : {Dialect::kNative, Dialect::kHuggingFace, Dialect::kVllm}) {
      ExpectPrinted(f(d, 8192, pairs[n]), golden[n], 1e-12);
    }
    // The divisor is a float32 in the file.
    const double plain = F(Spec(128, 5e5, 8192, NoScaling{}), pairs[n]);
    const double divisor = plain / f(Dialect::kLlamaCpp, 8192, pairs[n]);
    EXPECT_NEAR(divisor / divisors[n], 1, 0x1p-24 + 5e-9);
    EXPECT_NEAR(divisor, static_cast<float>(divisor), 1e-15);
    // Megatron fixes L = 8192, whatever the model's.
    EXPECT_EQ(f(Dialect::kMegatron, 4096, pairs[n]), f(Dialect::kNative, 8192, pairs[n]));
  }
  // L = 4096, b = 1e4, s = 4: a fixed 8192 doubles pair 41.
  const RotarySpec small = Spec(128, 1e4, 4096, Llama3Scaling{4, 1, 4});
  ExpectPrinted(F(small, 41), 1.222e-3, 5e-4);
  RotarySpec fixed = small;
  fixed.dialect = Dialect::kMegatron;
  ExpectPrinted(F(fixed, 41), 2.444e-3, 5e-4);
}

TEST(Dialects, LongRope) {
  LongRopeScaling p;
  p.short_factor.assign(48, 1.0);
  p.long_factor.assign(48, 4.0);
  p.factor = 131072.0 / 4096;
  const auto amplitude = [&](Dialect d, int64_t length) {
    return Resolve(Spec(96, 1e4, 4096, p, d), length).amplitude;
  };
  for (const Dialect d :
       {Dialect::kNative, Dialect::kHuggingFace, Dialect::kVllm, Dialect::kLlamaCpp}) {
    EXPECT_NEAR(amplitude(d, 4096), 1.1902380714, 5e-11);
    EXPECT_NEAR(amplitude(d, 4097), 1.1902380714, 5e-11);
    EXPECT_EQ(F(Spec(96, 1e4, 4096, p, d), 0, 4096), 1);
    EXPECT_EQ(F(Spec(96, 1e4, 4096, p, d), 0, 4097), 0.25);
  }
  p.factor = 6144.0 / 4096;  // an integer division would make it 1
  EXPECT_NEAR(amplitude(Dialect::kHuggingFace, 1), 1.0240834, 5e-8);
  p.attention_factor = 1.5;
  p.short_mscale = 1.1;
  p.long_mscale = 1.25;
  EXPECT_EQ(amplitude(Dialect::kHuggingFace, 5000), 1.5);
  EXPECT_EQ(amplitude(Dialect::kVllm, 5000), 1.25);
  EXPECT_EQ(amplitude(Dialect::kVllm, 100), 1.1);
  EXPECT_NEAR(amplitude(Dialect::kLlamaCpp, 5000), 1.0240834, 5e-8);
}

// p-RoPE is not a partial rotary: the exponent's denominator is the whole head.
TEST(Dialects, Proportional) {
  const RotarySpec spec = Spec(512, 1e6, 0, ProportionalScaling{0.25});
  const Frequencies f = Resolve(spec, 1);
  ASSERT_EQ(f.inv_freq.size(), 256u);
  ExpectPrinted(f.inv_freq[1].hi, 0.9474635257, 1e-10);
  EXPECT_GT(f.inv_freq[63].hi, 0);
  EXPECT_EQ(f.inv_freq[64].hi, 0);
  EXPECT_EQ(f.inv_freq_f32[255], 0);
  EXPECT_NEAR(F(Spec(128, 1e6, 0, NoScaling{}), 1), 0.8058421878, 5e-11);
  ExpectPrinted(F(Spec(512, 1e6, 0, ProportionalScaling{0.25, 8}), 1), 0.9474635257 / 8, 1e-10);
}

// Pairs with a wavelength beyond L have frequency 0, and no others.
TEST(Dialects, HopeDropsIncompletePairs) {
  const Frequencies f = Resolve(Spec(128, 5e5, 8192, HopeScaling{}), 1);
  const Frequencies plain = Resolve(Spec(128, 5e5, 8192, NoScaling{}), 1);
  int still = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const bool completes = 8192 * plain.inv_freq[i].hi >= 2 * std::numbers::pi;
    EXPECT_EQ(f.inv_freq[i].hi, completes ? plain.inv_freq[i].hi : 0) << i;
    still += completes ? 0 : 1;
  }
  EXPECT_EQ(still, 29);  // pairs 35 to 63: h ln(L / 2 pi) / ln b = 34.98
}

TEST(Dialects, DynamicYarn) {
  const RotarySpec spec = Spec(128, 1e4, 4096, DynamicYarnScaling{});
  const Frequencies within = Resolve(spec, 4096);
  EXPECT_EQ(within.inv_freq[40].hi, F(Spec(128, 1e4, 4096, NoScaling{}), 40));
  EXPECT_EQ(within.amplitude, 1);
  const Frequencies four = Resolve(spec, 16384);
  ExpectPrinted(four.inv_freq[32].hi, 6.538461538e-03);
  EXPECT_NEAR(four.amplitude, 1.1386294361, 5e-11);
}

// xPos: ratios per pair over 512 positions, d = 128.
TEST(Dialects, Xpos) {
  RotarySpec spec = Spec(128, 1e4, 0, NoScaling{});
  spec.xpos = XposDecay{};
  const Frequencies f = Resolve(spec, 1);
  ASSERT_EQ(f.log_decay.size(), 64u);
  EXPECT_NEAR(std::exp(f.log_decay[0] * 512), 0.285714, 5e-7);
  EXPECT_NEAR(std::exp(f.log_decay[31] * 512), 0.631696, 5e-7);
  EXPECT_NEAR(std::exp(f.log_decay[63] * 512), 0.988839, 5e-7);
}

// No formula: an error that says who and what, never the nearest.
TEST(Dialects, WhatADialectDoesNotHave) {
  const std::vector<double> ones(64, 1.0);
  const std::pair<Scaling, std::vector<Dialect>> refused[] = {
      {NtkScaling{4}, {Dialect::kHuggingFace, Dialect::kMegatron}},
      {NtkFixedScaling{4}, {Dialect::kHuggingFace, Dialect::kLlamaCpp}},
      {NtkMixedScaling{4}, {Dialect::kHuggingFace, Dialect::kYarnRepo}},
      {DynamicNtkScaling{4}, {Dialect::kLlamaCpp, Dialect::kMegatron}},
      {DynamicLinearScaling{4}, {Dialect::kHuggingFace, Dialect::kVllm}},
      {QwenNtkScaling{}, {Dialect::kHuggingFace, Dialect::kPaper}},
      {ByPartsScaling{4}, {Dialect::kHuggingFace, Dialect::kYarnRepo}},
      {ByPartsRepoScaling{4}, {Dialect::kHuggingFace, Dialect::kPaper}},
      {DynamicYarnScaling{}, {Dialect::kHuggingFace, Dialect::kLlamaCpp}},
      {Llama3Scaling{4}, {Dialect::kPaper, Dialect::kYarnRepo}},
      {LongRopeScaling{ones, ones, 2.0}, {Dialect::kMegatron, Dialect::kYarnRepo}},
      {ProportionalScaling{0.5}, {Dialect::kMegatron}},
      {HopeScaling{}, {Dialect::kHuggingFace, Dialect::kVllm}},
      {ExplicitScaling{ones}, {Dialect::kHuggingFace, Dialect::kVllm}},
  };
  for (const auto& [scaling, dialects] : refused) {
    for (const Dialect dialect : dialects) {
      try {
        Resolve(Spec(128, 1e4, 4096, scaling, dialect), 5000);
        ADD_FAILURE() << Name(dialect) << " took " << Describe(scaling);
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
        EXPECT_THAT(e.what(), HasSubstr(Name(dialect)));
        EXPECT_THAT(e.what(), HasSubstr(Describe(scaling)));
      }
    }
  }
}

// Where an engine agrees with the native formula, the bits are the same.
TEST(Dialects, PlainAndLinearAgreeEverywhere) {
  for (const Scaling& scaling : {Scaling(NoScaling{}), Scaling(LinearScaling{3})}) {
    const Frequencies native = Resolve(Spec(128, 5e5, 8192, scaling), 1);
    for (const char* name : {"paper", "hf", "vllm", "llamacpp", "megatron", "yarn_repo"}) {
      const Frequencies f = Resolve(Spec(128, 5e5, 8192, scaling, ParseDialect(name)), 1);
      for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(f.inv_freq[i].hi, native.inv_freq[i].hi);
    }
  }
}

}  // namespace dialects_test
}  // namespace ropewalk
