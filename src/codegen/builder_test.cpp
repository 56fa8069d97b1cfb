// Kernels as values: what verify() refuses, what all threads of a block share, and the text.
#include "codegen/builder.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ebb::codegen {
namespace {

const Target everything{.dynamic_shared = true, .async_copy = true, .cluster = true};

// The text of the Error that `body` gives a kernel, "" if there is none.
std::string refused(const std::function<void(Builder&)>& body, const Target& target = everything) {
  try {
    Builder b("k", target);
    body(b);
    b.finish(64, 0);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(codegen, barrier__is_refused_where_only_some_threads_are) {
  const std::string some = "only some threads are here";
  EXPECT_NE(
      refused([](Builder& b) { b.when(b.thread_index() < 3u, [&] { b.barrier(); }); }).find(some),
      std::string::npos);
  EXPECT_NE(refused([](Builder& b) {
              const U32 tid = b.thread_index();
              b.when(tid < 3u, [&] { b.shuffle_xor(to_f32(tid), 1); });
            }).find(some),
            std::string::npos);
  EXPECT_EQ(
      refused([](Builder& b) { b.when(b.block_index() < b.number(3), [&] { b.barrier(); }); }), "");
}

TEST(codegen, barrier_in_a_loop__needs_a_count_that_all_threads_share) {
  const auto loop = [](bool by_thread) {
    return refused([&](Builder& b) {
      const auto left = b.var(b.number(8));
      if (by_thread) left.set(b.thread_index());
      b.loop([&] {
        b.break_unless(left.get() != 0u);
        b.barrier();
        left.set(left.get() >> 1);
      });
    });
  };
  EXPECT_EQ(loop(false), "");
  EXPECT_NE(loop(true).find("only some threads"), std::string::npos);
}

// A variable that only some threads write differs afterwards, and what a loop makes of it too.
TEST(codegen, variable_that_some_threads_write__is_not_shared) {
  EXPECT_NE(refused([](Builder& b) {
              const auto v = b.var(b.u32(0));
              b.when(b.thread_index() == 0u, [&] { v.set(b.u32(1)); });
              b.when(v.get() == 0u, [&] { b.barrier(); });
            }).find("only some threads"),
            std::string::npos);
}

TEST(codegen, value__is_refused_outside_of_its_region) {
  EXPECT_NE(refused([](Builder& b) {
              U32 inner;
              b.when(b.thread_index() < 3u, [&] { inner = b.thread_index() + 1u; });
              b.when(inner < 2u, [] {});
            }).find("used where it is not defined"),
            std::string::npos);
}

TEST(codegen, kinds__must_match) {
  EXPECT_NE(refused([](Builder& b) {
              b.make(Op::add, Kind::u32, {b.thread_index(), b.f32(1)});
            }).find("another kind"),
            std::string::npos);
  EXPECT_NE(refused([](Builder& b) { b.put(Op::store, {b.thread_index()}); }).find("another kind"),
            std::string::npos);
}

TEST(codegen, loop__has_one_way_out) {
  EXPECT_NE(refused([](Builder& b) { b.loop([&] { b.barrier(); }); }).find("has a break_unless"),
            std::string::npos);
  EXPECT_NE(refused([](Builder& b) {
              b.loop([&] {
                const Pred p = b.block_index() < 2u;
                b.when(p, [&] { b.break_unless(p); });
              });
            }),
            "");
  EXPECT_NE(
      refused([](Builder& b) { b.break_unless(b.block_index() < 2u); }).find("stands in a loop"),
      std::string::npos);
}

TEST(codegen, parts_of_subgroups__are_powers_of_two) {
  for (const int lanes : {0, 1, 8, 32})
    EXPECT_EQ(refused([&](Builder& b) { b.when(b.lane(lanes) == b.subgroup_index(lanes), [] {}); }),
              "");
  for (const int lanes : {-1, 12, 64})
    EXPECT_NE(refused([&](Builder& b) { b.lane(lanes); }).find("a power of two of its lanes"),
              std::string::npos);
}

TEST(codegen, extension__is_refused_by_targets_without_it) {
  const auto body = [](Builder& b) { b.put(Op::copy_wait, {}); };
  EXPECT_EQ(refused(body), "");
  EXPECT_NE(refused(body, Target()).find("the target has no such instruction (copy_wait)"),
            std::string::npos);
}

TEST(codegen, print__shows_structure_and_kinds) {
  Builder b("scale", everything);
  std::vector<int64_t> pointers;
  const U64 data = b.pointer(pointers);
  const U32 block = b.block_index();
  const U32 at = mul_add(block, 64, b.thread_index());
  b.when(at < b.number(100), [&] {
    const Address x{data + mul_wide(at, 4)};
    const F32 y[] = {b.element(b.load(DType::f32, 1, x), 0) * 2.0f};
    b.store(DType::f32, y, x);
  });
  EXPECT_EQ(print(b.finish(64, 0)), R"(kernel scale threads 64
  %0:u64 = pointer
  %1:u32 = block_index
  %2:u32 = thread_index
  %4:u32 = mul_add %1 64 %2
  %5:u32 = param [8]
  %6:pred = compare.lt %4 %5
  when %6
    %8:u64 = mul_wide %4 4
    %9:u64 = add %0 %8
    %10:f32 = load.4 %9
    %12:f32 = mul %10 2f
    store.4 %9 %12
  end_when
)");
}

}  // namespace
}  // namespace ebb::codegen
