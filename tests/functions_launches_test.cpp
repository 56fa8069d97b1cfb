// What functions and their gradients launch and move on a GPU, which need not be here.
#include <gtest/gtest.h>

#include <cstdlib>

#include "backends.h"
#include "functions/function.h"
#include "ir/text.h"
#include "runtime/context.h"
#include "runtime/launches.h"

namespace ebb::functions::functions_launches_test {
namespace {

struct LaunchCase {
  const char* label;
  const char* function;
  std::vector<Shape> shapes;  // of the operands, bf16; of rank 0: absent
  std::vector<std::pair<const char*, AttributeValue>> attributes;
  int launches;
  double megabytes;
};

std::ostream& operator<<(std::ostream& out, const LaunchCase& c) { return out << c.label; }

std::vector<LaunchCase> norms_and_products() {
  using T = std::string;
  const Shape none{}, row{1, 4096}, weight{4096};
  const int64_t x_and_weight = 3;
  return {{"rms_norm_of_one_row",
           "rms_norm_backward",
           {row, row, weight, none},
           {{"needs", x_and_weight}},
           1,
           5 * 2 * 4096e-6},
          {"add_norm_of_one_row",
           "add_norm_backward",
           {row, none, row, row, none, none, none, weight, none},
           {{"kind", T("rms")}, {"needs", int64_t{0b100011}}},
           1,
           6 * 2 * 4096e-6},
          // rows, and their sums over rows, rounded where they are made
          {"layer_norm",
           "layer_norm_backward",
           {{2, 4096, 3072}, {2, 4096, 3072}, {3072}, {3072}},
           {{"needs", int64_t{7}}},
           2,
           163.596},
          // too few rows to sum up in parts: they are read again, as they are
          {"layer_norm_of_few_rows",
           "layer_norm_backward",
           {{2, 512, 3072}, {2, 512, 3072}, {3072}, {3072}},
           {{"needs", int64_t{7}}},
           2,
           31.492},
          {"rms_norm_of_64_rows",
           "rms_norm_backward",
           {{64, 4096}, {64, 4096}, weight, none},
           {{"needs", x_and_weight}},
           2,
           2.638},
          // two products of [1024,2048] [1024,512] [2048,512]
          {"linear",
           "linear_act_backward",
           {{1024, 2048}, {1024, 512}, {2048, 512}, none},
           {{"act", T("none")}, {"needs", x_and_weight}},
           2,
           2e-6 * 2 * (1024 * 2048 + 1024 * 512 + 2048 * 512)},
          // the sums over rows that are the bias's are of one of them, and f32
          {"linear_with_bias",
           "linear_act_backward",
           {{1024, 2048}, {1024, 512}, {2048, 512}, {2048}},
           {{"act", T("none")}, {"needs", int64_t{7}}},
           3,
           2e-6 * 2 * (1024 * 2048 + 1024 * 512 + 2048 * 512) + 10 * 2048e-6},
          {"linear_of_samples",
           "linear_act_backward",
           {{2, 512, 2048}, {2, 512, 512}, {2048, 512}, none},
           {{"act", T("none")}, {"needs", x_and_weight}},
           2,
           2e-6 * 2 * (1024 * 2048 + 1024 * 512 + 2048 * 512)}};
}

// Queries and keys, each with heads of its own, and their gradients: one launch, and one that
// writes signs when the function is made.
std::vector<LaunchCase> rotations() {
  using T = std::string;
  return {{"rotation_of_one_token",
           "qk_rope",
           {{64, 1, 32, 128}, {64, 1, 8, 128}, {64, 1, 128}, {64, 1, 128}},
           {{"style", T("half")}},
           2,
           1.378},
          {"gradient_of_rotations",
           "qk_rope_backward",
           {{1, 8192, 32, 128},
            {1, 8192, 8, 128},
            {1, 8192, 32, 128},
            {1, 8192, 8, 128},
            {1, 8192, 128},
            {1, 8192, 128}},
           {{"style", T("half")}, {"needs", int64_t{3}}},
           2,
           176.162},
          {"rotated_norms",
           "qk_norm_rope",
           {{1, 4608, 24, 128}, {1, 4608, 6, 128}, {128}, {128}, {4608, 128}, {4608, 128}},
           {},
           2,
           75.5}};
}

std::vector<LaunchCase> launch_cases() {
  std::vector<LaunchCase> all = norms_and_products();
  for (const LaunchCase& c : rotations()) all.push_back(c);
  return all;
}

class LaunchesOf : public ::testing::TestWithParam<LaunchCase> {};

TEST_P(LaunchesOf, functions__are_as_few_as_they_can_be) {
  if (test::only("cuda").empty()) GTEST_SKIP() << "built without CUDA";
  const LaunchCase& c = GetParam();
  const Function& f = find_function(c.function);
  std::vector<AttributeValue> values;
  for (const Attribute& a : f.attributes) {
    values.push_back(a.value);
    for (const auto& [name, value] : c.attributes)
      if (a.name == name) values.back() = value;
  }
  Graph g;
  std::vector<Value> in;
  for (const Shape& s : c.shapes)
    in.push_back(s.rank() > 0 ? g.input(str("x", in.size()), {DType::bf16, s}) : Value{});
  const std::vector<Value> results = f.build({g, in, f.attrs(values)});
  for (size_t k = 0; k < results.size(); ++k) g.output(str("y", k), results[k]);
  const Context context = open_context("cuda:h200");
  Lowering l{*context.device, {}};
  const Graph low = lowered(g, l);
  const std::string table = launch_table(low, l);
  const size_t all = table.rfind('\n', table.find("  all\n"));
  ASSERT_NE(table.find("  all\n"), std::string::npos) << table;
  char* rest = nullptr;
  const char* line = table.c_str() + (all == std::string::npos ? 0 : all + 1);
  EXPECT_EQ(std::strtol(line, &rest, 10), c.launches) << table << to_text(low);
  EXPECT_NEAR(std::strtod(rest, nullptr), c.megabytes, 1e-3) << table << to_text(low);
}

TEST(functions, rotations__read_a_tensor_and_its_partners_once) {
  if (test::only("cuda").empty()) GTEST_SKIP() << "built without CUDA";
  Graph g;
  const std::vector<Value> in = {g.input("x", {DType::bf16, {1, 512, 24, 128}}),
                                 g.input("cos", {DType::f32, {512, 128}}),
                                 g.input("sin", {DType::f32, {512, 128}})};
  const Function& f = find_function("rope");
  const std::vector<AttributeValue> style = {std::string("interleaved")};
  g.output("y", f.build({g, in, f.attrs(style)})[0]);
  const Context context = open_context("cuda:h200");
  Lowering l{*context.device, {}};
  const std::string text = to_text(lowered(g, l));
  EXPECT_NE(text.find("swapped=1:1 same=-1,0,-1,-1,-1"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(h200, LaunchesOf, ::testing::ValuesIn(launch_cases()),
                         [](const auto& info) { return std::string(info.param.label); });

}  // namespace
}  // namespace ebb::functions::functions_launches_test
