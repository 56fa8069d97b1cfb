// NCCL as ebb calls it, on a stand-in that records the calls: no GPU is needed.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>

#include "backend/cuda/nccl/communicator.h"
#include "support/files.h"

namespace ebb::cuda::nccl {
namespace {

// What the other ranks say to the first gather, behind what this one says.
class Group final : public RankGroup {
 public:
  explicit Group(int64_t rank = 0) : rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t ranks() const override { return 2; }
  int64_t local_rank() const override { return rank_; }
  std::vector<std::string> gather(std::string_view own) override {
    std::string other = answer.value_or(std::string(own));
    if (rank_ == 0) return {std::string(own), other};
    return {other, std::string(own)};
  }
  std::optional<std::string> answer;  // none: the same

 private:
  int64_t rank_;
};

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override { calls(); }  // those of the test before
  std::string calls() const {
    return reinterpret_cast<const char* (*)()>(dlsym(handle_, "fake_nccl_calls"))();
  }
  void fail_with(int result, int async) const {
    reinterpret_cast<void (*)(int, int)>(dlsym(handle_, "fake_nccl_fail"))(result, async);
  }
  std::unique_ptr<Communicator> communicator_of(Group& group) {
    return communicator(library_, group, [] { return stream(0x5); });
  }
  static cudaStream_t stream(uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }
  static void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

  Library library_ = load({"/nowhere/libnccl.so.2", EBB_FAKE_NCCL});
  void* handle_ = dlopen(EBB_FAKE_NCCL, RTLD_NOW);
};

TEST_F(Nccl, collectives__one_group_on_the_stream) {
  Group group;
  const auto c = communicator_of(group);
  EXPECT_EQ(calls(), "init 0 of 2\n");
  EXPECT_EQ(c->description(), "NCCL 2.28.9");
  const std::array operands = {
      Communicator::Operand{at(0x10), at(0x20), 100, DType::f32},
      Communicator::Operand{at(0x30), at(0x30), int64_t{1} << 33, DType::bf16}};
  c->all_reduce(operands);
  EXPECT_EQ(calls(),
            "group\n"
            "all_reduce 0x10 0x20 100 7 0 0xc0 0x5\n"
            "all_reduce 0x30 0x30 8589934592 9 0 0xc0 0x5\n"
            "end\n");
  c->reduce_scatter({operands.data(), 1});
  EXPECT_EQ(calls(), "group\nreduce_scatter 0x10 0x20 100 7 0 0xc0 0x5\nend\n");
  c->all_gather({operands.data(), 1});
  EXPECT_EQ(calls(), "group\nall_gather 0x10 0x20 100 7 0 0xc0 0x5\nend\n");
  c->broadcast({operands.data(), 1});
  EXPECT_EQ(calls(), "group\nbroadcast 0x10 0x20 100 7 0 0xc0 0x5\nend\n");
}

TEST_F(Nccl, dtypes) {
  EXPECT_EQ(number_of(DType::u8), 1);
  EXPECT_EQ(number_of(DType::i32), 2);
  EXPECT_EQ(number_of(DType::i64), 4);
  EXPECT_EQ(number_of(DType::f16), 6);
}

TEST_F(Nccl, rank_1__takes_the_id_of_rank_0) {
  Group group(1);
  std::string id;
  for (int i = 0; i < 128; ++i) id += static_cast<char>(i);
  group.answer = "2.28.9\n" + id;
  const auto c = communicator_of(group);
  EXPECT_EQ(calls(), "init 1 of 2\n");
}

TEST_F(Nccl, another_version__is_refused) {
  Group group;
  group.answer = "2.18.3\n" + std::string(128, 'x');
  testing::expect_error([&] { communicator_of(group); },
                        "all ranks need the same version (2.28.9 on rank 0, 2.18.3 on rank 1)");
}

TEST_F(Nccl, errors__in_its_words_and_the_group_is_closed) {
  Group group;
  const auto c = communicator_of(group);
  calls();
  const std::array one = {Communicator::Operand{at(0x10), at(0x20), 1, DType::f32}};
  fail_with(6, 0);
  testing::expect_error([&] { c->all_reduce(one); },
                        "nccl: all_reduce failed (remote error: the cable is out)");
  EXPECT_TRUE(calls().ends_with("end\n"));
  EXPECT_EQ(c->fault(), "") << "of the call, not of the link";
  fail_with(0, 6);
  testing::expect_error([&] { c->all_reduce(one); }, "nccl: the link failed (remote error");
  EXPECT_TRUE(c->fault().starts_with("nccl: the link failed (remote error")) << c->fault();
  fail_with(0, 0);
}

TEST_F(Nccl, end__aborts_only_while_an_error_is_on_its_way) {
  Group group;
  communicator_of(group);
  EXPECT_TRUE(calls().ends_with("destroy\n"));
  testing::expect_error(
      [&] {
        const auto c = communicator_of(group);
        fail("something");
      },
      "something");
  EXPECT_TRUE(calls().ends_with("abort\n"));
}

TEST_F(Nccl, two_ranks_on_one_gpu__are_refused) {
  Group group;
  testing::expect_error([&] { check_own_gpu(group, "uuid", "GPU 0000:1b:00.0 of toy"); },
                        "each rank needs a GPU of its own (ranks 0 and 1 have the same)  GPU "
                        "0000:1b:00.0 of toy");
  group.answer = "other\nGPU";
  check_own_gpu(group, "uuid", "GPU 0000:1b:00.0 of toy");
}

TEST_F(Nccl, not_there__says_where_to_get_it) {
  testing::expect_error(
      [] { load({"/nowhere/libnccl.so.2"}); },
      "package libnccl2 has it, or `pip install nvidia-nccl-cu13`; EBB_NCCL says");
  testing::expect_error([] { load({"libc.so.6"}); }, "the library lacks ncclGetVersion");
}

TEST_F(Nccl, places) {
  EXPECT_EQ(places({{"EBB_NCCL", "/a/libnccl.so.2"}}), std::vector<std::string>{"/a/libnccl.so.2"});
  const testing::Folder folder;
  EXPECT_EQ(places({{"EBB_NCCL", folder.path()}}),
            std::vector<std::string>{folder / "libnccl.so.2"});
  const std::string wheel = folder / "lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2";
  testing::put_file(wheel, "");
  const auto all = places({{"VIRTUAL_ENV", folder.path()}});
  EXPECT_EQ(all.front(), "libnccl.so.2");
  EXPECT_NE(std::ranges::find(all, wheel), all.end());
}

}  // namespace
}  // namespace ebb::cuda::nccl
