// What is said of CUDA, for every answer that its runtime can give; and what this machine gives.
#include "ropewalk/base/cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "ropewalk/base/error.h"
#include "src/base/cuda.h"
#include "src/base/cuda_describe.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace {

using internal::CudaFaults;
using internal::CudaProbe;
using internal::HasCodeFor;
using test::MessageOf;
using ::testing::HasSubstr;

constexpr char kTargets[] = "sm_80 sm_90 sm_100 ptx_80";

CudaProbe Built() {
  CudaProbe p;
  p.toolkit = 13000;
  p.targets = kTargets;
  p.driver = 13010;
  return p;
}

TEST(Cuda, ABuildWithoutSaysHowToGetOne) {
  const CudaInfo info = internal::DescribeCuda({});
  EXPECT_EQ(info.toolkit, "");
  EXPECT_EQ(info.driver, "");
  EXPECT_THAT(info.why_none, HasSubstr("this build has no CUDA; build with ROPEWALK_CUDA=ON"));
}

TEST(Cuda, EachReasonForNoDeviceSaysWhatToDo) {
  CudaProbe p = Built();
  p.driver = 0;
  p.status = CudaProbe::kDriverTooOld;  // what the runtime says where there is none
  CudaInfo info = internal::DescribeCuda(p);
  EXPECT_EQ(info.toolkit, "13.0");
  EXPECT_EQ(info.targets, kTargets);
  EXPECT_EQ(info.driver, "");
  EXPECT_THAT(info.why_none, HasSubstr("no NVIDIA driver; install one for CUDA 13.0 or newer"));

  p.driver = 12080;
  info = internal::DescribeCuda(p);
  EXPECT_EQ(info.driver, "12.8");
  EXPECT_THAT(info.why_none, HasSubstr("the driver knows CUDA up to 12.8, and this build needs "
                                       "13.0; update the driver"));

  p = Built();
  p.status = CudaProbe::kNoDevice;
  info = internal::DescribeCuda(p);
  EXPECT_EQ(info.driver, "13.1");
  EXPECT_THAT(info.why_none, HasSubstr("no GPU; see what nvidia-smi says"));

  p.status = CudaProbe::kFailed;
  p.error = "system not yet initialized";
  EXPECT_THAT(internal::DescribeCuda(p).why_none,
              HasSubstr("the CUDA runtime says: system not yet initialized"));

  p = Built();
  p.devices = {{"NVIDIA T4", 7, 5, 1, 40}, {"NVIDIA V100", 7, 0, 1, 80}};
  info = internal::DescribeCuda(p);
  EXPECT_TRUE(info.devices.empty());
  EXPECT_THAT(info.why_none, HasSubstr("none of which runs on NVIDIA T4 (compute capability 7.5), "
                                       "NVIDIA V100 (compute capability 7.0)"));
  EXPECT_THAT(info.why_none, HasSubstr("8.0 or newer"));
}

TEST(Cuda, DevicesThatThereIsNoCodeForAreLeftOut) {
  CudaProbe p = Built();
  p.devices = {{"NVIDIA T4", 7, 5, 1, 40}, {"NVIDIA H200", 9, 0, int64_t{139} << 30, 132}};
  const CudaInfo info = internal::DescribeCuda(p);
  ASSERT_EQ(info.devices.size(), 1u);
  EXPECT_EQ(info.devices[0].name, "NVIDIA H200");
  EXPECT_EQ(info.devices[0].multiprocessors, 132);
  EXPECT_EQ(info.why_none, "");
}

TEST(Cuda, KnowsWhichDevicesRunWhichCode) {
  EXPECT_FALSE(HasCodeFor(kTargets, 7, 5));
  for (const int of : {80, 86, 89, 90, 100, 103, 120}) {
    EXPECT_TRUE(HasCodeFor(kTargets, of / 10, of % 10)) << of;
  }
  // Machine code alone: later minor versions of its major one, no other.
  EXPECT_FALSE(HasCodeFor("sm_86", 8, 0));
  EXPECT_TRUE(HasCodeFor("sm_86", 8, 9));
  EXPECT_FALSE(HasCodeFor("sm_86", 9, 0));
  EXPECT_FALSE(HasCodeFor("ptx_90", 8, 9));
  EXPECT_TRUE(HasCodeFor("ptx_90", 12, 0));
  EXPECT_TRUE(HasCodeFor("sm_90a", 9, 0));
  EXPECT_FALSE(HasCodeFor("sm_100a ptx_100a", 10, 3));
  EXPECT_FALSE(HasCodeFor("", 9, 0));
}

TEST(Cuda, FaultsNameTheFirstOfEachKind) {
  CudaFaults faults{};
  EXPECT_NO_THROW(internal::ThrowFaults(faults));
  internal::ReportFault(&faults, CudaFaults::kPosition, 131072);
  internal::ReportFault(&faults, CudaFaults::kPosition, 5);
  const auto thrown = [&] { internal::ThrowFaults(faults); };
  std::string says = MessageOf(ErrorCode::kInvalidArgument, thrown);
  EXPECT_THAT(says, HasSubstr("position 131072 (met 2 times) is outside its call's table"));
  EXPECT_THAT(says, Not(HasSubstr("slot")));
  internal::ReportFault(&faults, CudaFaults::kSlot, -7);
  says = MessageOf(ErrorCode::kInvalidArgument, thrown);
  EXPECT_THAT(says, HasSubstr("position 131072"));
  EXPECT_THAT(says, HasSubstr("And slot -7 (met once) is outside its call's cache"));
}

// On any machine: what there is, or why there is none, and the same reason from what needs a GPU.
TEST(Cuda, WithoutADeviceEveryCallSaysWhy) {
  const CudaInfo info = FindCuda();
  EXPECT_EQ(info.toolkit.empty(), ROPEWALK_HAVE_CUDA == 0);
  EXPECT_EQ(info.targets.empty(), ROPEWALK_HAVE_CUDA == 0);
  EXPECT_EQ(info.why_none.empty(), !info.devices.empty());
  if (!info.devices.empty()) {
    for (const CudaDevice& d : info.devices) EXPECT_GE(d.major, 8) << d.name;
    EXPECT_NO_THROW(CudaSynchronize());
    return;
  }
  const auto refused = [&](const auto& call) {
    EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, call), HasSubstr(info.why_none));
  };
  char byte = 0;
  refused([] { CudaSynchronize(); });
  refused([] { internal::DeviceFaults(); });
  refused([] { internal::DeviceMultiprocessors(); });
  refused([] { internal::CurrentDevice(); });
  refused([] { internal::DeviceBuffer(16); });
  refused([&] { internal::CopyToDevice(&byte, &byte, 1, nullptr); });
  refused([&] { internal::CopyOnDevice(&byte, &byte, 1, nullptr); });
  refused([&] { internal::CopyToHost(&byte, &byte, 1, nullptr); });
}

TEST(Cuda, AnEmptyBufferMovesAndDies) {
  internal::DeviceBuffer a, b(std::move(a));
  EXPECT_EQ(b.data(), nullptr);
  EXPECT_EQ(b.bytes(), 0);
  a = std::move(b);
  EXPECT_EQ(a.data(), nullptr);
}

}  // namespace
}  // namespace ropewalk
