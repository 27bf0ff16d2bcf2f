#include "ropewalk/base/tensor_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "ropewalk/base/buffer.h"

namespace ropewalk {
namespace {

TEST(TensorView, ContiguousIsRowMajor) {
  float data[24];
  const TensorView v = TensorView::Of(data, {2, 3, 4});
  EXPECT_EQ(v.data, data);
  EXPECT_EQ(v.dtype, DType::kF32);
  EXPECT_EQ(v.rank, 3);
  EXPECT_EQ(v.strides[0], 12);
  EXPECT_EQ(v.strides[1], 4);
  EXPECT_EQ(v.strides[2], 1);
  EXPECT_EQ(v.NumElements(), 24);
  EXPECT_EQ(v.ShapeString(), "[2, 3, 4]");
  EXPECT_FALSE(v.empty());
  EXPECT_EQ(TensorView().NumElements(), 1);
  EXPECT_TRUE(TensorView().empty());
  EXPECT_TRUE(TensorView::Of(data, {3, 0}).empty());
}

TEST(TensorView, RefusesShapesThatAreNone) {
  const auto view = [](std::initializer_list<int64_t> shape) {
    return TensorView::Contiguous(nullptr, DType::kF32, shape);
  };
  EXPECT_THROW(view({1, 1, 1, 1, 1, 1}), Error);
  EXPECT_THROW(view({int64_t{1} << 32, int64_t{1} << 32}), Error);
  EXPECT_THROW(view({int64_t{1} << 62, 4, 0}), Error);
  try {
    view({2, -1});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("[2, -1]"));
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  }
}

TEST(AlignedBuffer, AlignsFillsAndRefusesAbsurdSizes) {
  AlignedBuffer<float> b(7, 2.5f);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % kAlignment, 0u);
  for (const float x : b) EXPECT_EQ(x, 2.5f);
  EXPECT_EQ(AlignedBuffer<double>(0).data(), nullptr);
  EXPECT_THROW(AlignedBuffer<double>(SIZE_MAX / 4), std::bad_alloc);
  EXPECT_THROW(AlignedBuffer<double>(SIZE_MAX), std::bad_alloc);
  const AlignedBuffer<float> moved = std::move(b);
  EXPECT_EQ(moved.span().size(), 7u);
}

}  // namespace
}  // namespace ropewalk
