// Graphs: text, verifier, error texts.
#include <gtest/gtest.h>

#include "ir/text.h"
#include "ops/add/op.h"
#include "ops/group_norm/op.h"
#include "ops/mul/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "ops/silu/op.h"
#include "ops/split/op.h"
#include "ops/table.h"
#include "support/files.h"

namespace ebb::ir_test {
namespace {

using testing::error_of;

Type f32(Shape s) { return {DType::f32, std::move(s)}; }

// Sources of every kind, attributes of every type, several results, paths, updates.
Graph everything() {
  Graph g;
  const Value x = g.input("x", f32({2, 4, 4, 6}));
  const Value w = g.source(Source::Kind::param, "net.norm.weight", f32({6}));
  Value h;
  {
    const AtScope scope(g, "net.norm");
    h = ops::group_norm(x, w, {}, {.groups = 3, .eps = 1e-6});
    const auto m = ops::moments(h, {.axis = 1, .groups = 2});
    g.output("mean", m.mean);
    g.output("var", m.var);
  }
  const Value v = g.source(Source::Kind::state, "average", f32({6}));
  h = ops::silu(h) * 0.5 + ops::cast(x, DType::bf16);
  g.output("y", ops::reshape(h, {2, -1}));
  g.update("average", v * 0.9 + w * 0.1);
  return g;
}

TEST(graph, older_text__with_rules_of_first_values_is_read) {
  const Graph g = parse_graph("%0 = param w : f32[6] {init=ones scale=1 file_shape=[]}\n", find_op);
  EXPECT_EQ(to_text(g), "%0 = param w : f32[6]\n");
}

TEST(graph, text__reads_back) {
  const Graph g = everything();
  verify(g, "building");
  const std::string text = to_text(g);
  const Graph read = parse_graph(text, find_op);
  EXPECT_EQ(to_text(read), text);
  EXPECT_EQ(read.sources().size(), 3u);
  const Source* w = read.find_source("net.norm.weight");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->kind, Source::Kind::param);
  EXPECT_EQ(read.nodes()[0].at, "net.norm");
  EXPECT_EQ(read.updates()[0].name, "average");
}

TEST(graph, text__is_stable) {
  Graph g;
  const Value x = g.input("x", f32({2, 3}));
  const AtScope scope(g, "a.b");
  g.output("y", ops::slice(ops::silu(x), 1, 0, 2));
  EXPECT_EQ(to_text(g),
            "%0 = input x : f32[2,3]\n"
            "%1 = silu(%0) : f32[2,3]  @ a.b\n"
            "%2 = slice(%1) {dim=1 begin=0 end=2} : f32[2,2]  @ a.b\n"
            "output y = %2\n");
}

// Files of tuners know uses by their text: those of plans have the one they always had.
TEST(signature, text__tells_of_alignment_only_where_plans_do_not_keep_it) {
  Signature s{&ops::def::silu(), {}, {f32({2, 3})}, {f32({2, 3})}, ""};
  EXPECT_EQ(s.text(), "silu f32[2,3]");
  s.aligned = false;
  EXPECT_EQ(s.text(), "silu f32[2,3] unaligned");
}

TEST(graph, bad_text__names_the_line) {
  const auto parse = [](std::string_view text) {
    return error_of([&] { parse_graph(text, find_op); });
  };
  EXPECT_EQ(parse("%0 = input x : f32[2]\n%1 = silo(%0) : f32[2]\n"),
            "graph text: line 2: op: unknown name 'silo' (did you mean 'silu'?)");
  EXPECT_EQ(parse("%0 = silu(%7) : f32[2]\n"), "graph text: line 1: no value %7");
  EXPECT_EQ(parse("%0 = input x : f32[2]\n%1 = silu(%0) : f32[3]\n"),
            "graph text: line 2: silu: computes f32[2] (the text says f32[3])");
  EXPECT_EQ(parse("%0 = input x : f32[2]\n%0 = silu(%0) : f32[2]\n"),
            "graph text: line 2: value %0 stands twice");
  EXPECT_EQ(parse("%0 = input x : f32[2]\n%1 = silu(%0), %2 : f32[2]\n").substr(0, 19),
            "graph text: line 2:");
  EXPECT_EQ(parse("nonsense\n"), "graph text: line 1: expected ' = ' in 'nonsense'");
  EXPECT_EQ(parse("%0 = input x : f99[2]\n"),
            "graph text: line 1: dtype: unknown name 'f99' (known: f32, bf16, f16, i32, i64, u8)");
  EXPECT_EQ(parse("%0 = input x : f32[2\n"),
            "graph text: line 1: type: expected dtype[sizes] (got 'f32[2')");
  EXPECT_EQ(parse("%0 = input x : f32[2]\n%1 = reduce(%0) {kind=mean} : f32[1]\n"),
            "graph text: line 2: reduce: kind must be sum or max (got 'mean')");
  EXPECT_NE(
      parse("%0 = input x : f32[2]\n%1 = slice(%0) {dim=0 start=1} : f32[2]\n").find("unknown"),
      std::string::npos);
}

TEST(graph, foreign_value__is_refused) {
  Graph a, b;
  const Value x = a.input("x", f32({2})), y = b.input("x", f32({2}));
  EXPECT_EQ(error_of([&] { x + y; }), "add: input belongs to another graph  at ");
  EXPECT_EQ(error_of([&] { a.output("y", y); }), "graph: output 'y' belongs to another graph");
}

TEST(graph, source_names__are_unique_and_suggested) {
  Graph g;
  g.input("weight", f32({2}));
  EXPECT_EQ(error_of([&] { g.input("weight", f32({2})); }),
            "graph: source 'weight' exists already  f32[2]");
  EXPECT_EQ(error_of([&] { g.find("wieght"); }),
            "graph: no source 'wieght' (did you mean 'weight'?)");
  EXPECT_EQ(g.fresh_name("bias"), "bias");
  EXPECT_EQ(g.fresh_name("weight"), "weight.2");
}

TEST(verify, updates__must_fit_their_source) {
  Graph g;
  const Value x = g.input("x", f32({2}));
  g.update("x", x);
  EXPECT_EQ(error_of([&] { verify(g, "a test"); }),
            "verify after a test: update 'x' names no parameter or state");
  Graph h;
  h.source(Source::Kind::state, "s", f32({3}));
  h.update("s", h.input("x", f32({2})));
  EXPECT_EQ(error_of([&] { verify(h, "a test"); }),
            "verify after a test: update 's' has another type (f32[2] for f32[3])");
}

TEST(rewriter, copy__is_the_same_graph) {
  const Graph g = everything();
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes()) rw.copy(n);
  rw.copy_ends();
  const Graph copy = rw.take();
  verify(copy, "copying");
  EXPECT_EQ(copy.nodes().size(), g.nodes().size());
  EXPECT_EQ(copy.outputs().size(), g.outputs().size());
  EXPECT_EQ(to_text(parse_graph(to_text(copy), find_op)), to_text(copy));
}

TEST(rewriter, unmapped_value__is_an_error) {
  const Graph g = everything();
  Rewriter rw(g);
  EXPECT_EQ(error_of([&] { rw.copy(g.nodes()[0]); }), "rewrite: %0 is not mapped yet");
}

TEST(errors, ops__name_rule_numbers_operands_and_path) {
  Graph g;
  const AtScope scope(g, "unet.mid.norm1");
  const Value x = g.input("x", f32({2, 4, 4, 320}));
  EXPECT_EQ(error_of([&] { ops::group_norm(x, {}, {}, {.groups = 33}); }),
            "group_norm: channels (320) must be divisible by groups (33)  x: f32[2,4,4,320]  at "
            "unet.mid.norm1");
  EXPECT_EQ(error_of([&] {
              x + g.input("y", f32({3, 320}));
            }),
            "add: shapes must broadcast (4 against 3 in dim 2)  [2,4,4,320], [3,320]");
  EXPECT_EQ(error_of([&] {
              ops::reshape(x, {7, 3});
            }),
            "reshape: must keep the number of elements (10240 to 21)  f32[2,4,4,320] to [7,3]  at "
            "unet.mid.norm1");
  EXPECT_EQ(error_of([&] { ops::slice(x, 3, 100, 400); }),
            "slice: [100, 400) must lie in [0, 320)  x: f32[2,4,4,320]  at unet.mid.norm1");
  EXPECT_EQ(error_of([&] { ops::split(x, -1, 3); }),
            "split: 3 parts must divide dim 3  x: f32[2,4,4,320]  at unet.mid.norm1");
  EXPECT_EQ(error_of([&] {
              ops::concat({x, g.input("z", f32({2, 4, 5, 8}))}, -1);
            }),
            "concat: sizes of dim 2 must be equal (4, 5)  f32[2,4,4,320], f32[2,4,5,8]  at "
            "unet.mid.norm1");
}

TEST(pointwise_types, floats_win_and_widen) {
  Graph g;
  const Value a = g.input("a", {DType::bf16, {2, 1}}), b = g.input("b", {DType::f16, {3}}),
              c = g.input("c", {DType::i64, {3}});
  EXPECT_EQ((a + a).dtype(), DType::bf16);
  EXPECT_EQ((a + b).type(), f32({2, 3}));
  EXPECT_EQ((a + c).type(), (Type{DType::bf16, {2, 3}}));
  EXPECT_EQ((c + c).dtype(), DType::f32);
  EXPECT_EQ((a * 2.0).dtype(), DType::bf16);
}

}  // namespace
}  // namespace ebb::ir_test
