// Which shard a process is: by hand, and as what started it says.
#include "ropewalk/eval/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ropewalk/base/error.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace {

using test::MessageOf;
using testing::AllOf;
using testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

Environment Of(const Variables& variables) {
  return [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

std::string Auto(const Variables& variables) {
  const Environment environment = Of(variables);
  return ParseShard("auto", environment).Name();
}
std::string WhyNot(const std::string& text, const Variables& variables = {}) {
  return MessageOf([&] { ParseShard(text, Of(variables)); });
}

TEST(Shard, ByHand) {
  const Shard shard = ParseShard("3/16", Of({}));
  EXPECT_EQ(shard.index, 3);
  EXPECT_EQ(shard.count, 16);
  EXPECT_EQ(ParseShard("1/1", Of({})).Name(), "1/1");
  // What is set counts for "auto" alone.
  EXPECT_EQ(ParseShard("2/2", Of({{"RANK", "7"}, {"WORLD_SIZE", "9"}})).Name(), "2/2");
  for (const char* wrong : {"", "3", "3/", "/16", "a/b", "3/16 ", " 3/16", "3.5/16", "3/16/2",
                            "automatic", "0x3/16", "3/99999999999999999999"}) {
    EXPECT_THAT(WhyNot(wrong), HasSubstr("such as 3/16")) << wrong;
  }
  for (const char* absurd : {"3/0", "17/16", "0/16", "-1/16", "3/-1", "1/1000001"}) {
    EXPECT_THAT(WhyNot(absurd),
                AllOf(HasSubstr("from 1 to the number of shards"), HasSubstr(absurd)));
  }
}

TEST(Shard, ByWhatStartedIt) {
  EXPECT_EQ(Auto({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "1/4");
  EXPECT_EQ(Auto({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}), "4/4");
  EXPECT_EQ(Auto({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "2/2");
  EXPECT_EQ(Auto({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}}), "6/8");
  const Variables array = {{"SLURM_ARRAY_TASK_ID", "7"},
                           {"SLURM_ARRAY_TASK_MIN", "1"},
                           {"SLURM_ARRAY_TASK_MAX", "16"},
                           {"SLURM_ARRAY_TASK_STEP", "1"},
                           {"SLURM_ARRAY_TASK_COUNT", "16"}};
  EXPECT_EQ(Auto(array), "7/16");
  // sbatch says so of the one task of its script.
  Variables script = array;
  script.insert({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}});
  EXPECT_EQ(Auto(script), "7/16");
  EXPECT_EQ(Auto({{"SLURM_ARRAY_TASK_ID", "14"},
                  {"SLURM_ARRAY_TASK_MIN", "10"},
                  {"SLURM_ARRAY_TASK_MAX", "18"},
                  {"SLURM_ARRAY_TASK_STEP", "4"}}),
            "2/3");
}

TEST(Shard, MpirunAndTorchrunCountWithinWhatStartedThem) {
  // mpirun -n 4 in the script of an array of 2.
  Variables both = {{"SLURM_ARRAY_TASK_ID", "2"},  {"SLURM_ARRAY_TASK_MIN", "1"},
                    {"SLURM_ARRAY_TASK_MAX", "2"}, {"SLURM_PROCID", "0"},
                    {"SLURM_NTASKS", "4"},         {"OMPI_COMM_WORLD_RANK", "3"},
                    {"OMPI_COMM_WORLD_SIZE", "4"}};
  EXPECT_EQ(Auto(both), "8/8");
  both.erase("OMPI_COMM_WORLD_RANK");
  both.erase("OMPI_COMM_WORLD_SIZE");
  both.insert({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(Auto(both), "4/4");
  // SLURM_NTASKS alone is no rank.
  EXPECT_EQ(Auto({{"SLURM_NTASKS", "4"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}), "2/2");
}

TEST(Shard, WhatDoesNotFitIsRefusedByName) {
  EXPECT_THAT(WhyNot("auto"),
              AllOf(HasSubstr("SLURM_ARRAY_TASK_ID"), HasSubstr("OMPI_COMM_WORLD_RANK"),
                    HasSubstr("PMI_RANK"), HasSubstr("WORLD_SIZE"), HasSubstr("SLURM_PROCID")));
  EXPECT_THAT(WhyNot("auto", {{"RANK", "1"}}), HasSubstr("RANK is set and WORLD_SIZE is not"));
  EXPECT_THAT(WhyNot("auto", {{"WORLD_SIZE", "2"}}),
              HasSubstr("WORLD_SIZE is set and RANK is not"));
  EXPECT_THAT(WhyNot("auto", {{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}}),
              AllOf(HasSubstr("5/4"), HasSubstr("PMI_RANK")));
  EXPECT_THAT(WhyNot("auto", {{"PMI_RANK", "four"}, {"PMI_SIZE", "4"}}),
              HasSubstr("PMI_RANK is 'four'"));
  EXPECT_THAT(WhyNot("auto", {{"PMI_RANK", ""}, {"PMI_SIZE", "4"}}), HasSubstr("PMI_RANK is ''"));
  EXPECT_THAT(WhyNot("auto", {{"SLURM_ARRAY_TASK_ID", "4"}}), HasSubstr("SLURM_ARRAY_TASK_MIN"));
  EXPECT_THAT(WhyNot("auto", {{"SLURM_ARRAY_TASK_ID", "4"},
                              {"SLURM_ARRAY_TASK_MIN", "5"},
                              {"SLURM_ARRAY_TASK_MAX", "8"}}),
              HasSubstr("SLURM_ARRAY_TASK_ID"));
}

TEST(Shard, RanksOfOneMachineShareItsCores) {
  EXPECT_EQ(ThreadsOfRank(16, Of({})), 16);
  EXPECT_EQ(ThreadsOfRank(16, Of({{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}})), 4);
  EXPECT_EQ(ThreadsOfRank(2, Of({{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}})), 1);
  EXPECT_EQ(ThreadsOfRank(16, Of({{"MPI_LOCALNRANKS", "3"}})), 5);
  EXPECT_EQ(ThreadsOfRank(16, Of({{"LOCAL_WORLD_SIZE", "8"}})), 2);
  EXPECT_EQ(ThreadsOfRank(16, Of({{"SLURM_NTASKS_PER_NODE", "2"}})), 8);
  EXPECT_EQ(ThreadsOfRank(16, Of({{"SLURM_CPUS_PER_TASK", "6"}, {"SLURM_NTASKS_PER_NODE", "2"}})),
            6);
  EXPECT_EQ(ThreadsOfRank(4, Of({{"SLURM_CPUS_PER_TASK", "6"}})), 4);
  EXPECT_THAT(MessageOf([] {
                ThreadsOfRank(4, Of({{"SLURM_CPUS_PER_TASK", "many"}}));
              }),
              HasSubstr("SLURM_CPUS_PER_TASK is 'many'"));
}

}  // namespace
}  // namespace ropewalk
