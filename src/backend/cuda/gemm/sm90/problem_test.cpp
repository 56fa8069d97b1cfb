// Choices of GEMMs on sm_90a: which are offered, and which are refused.
#include "backend/cuda/gemm/sm90/problem.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "support/files.h"

namespace ebb::cuda::gemm {
namespace {

using testing::expect_error;

constexpr int sm_count = 132;

const std::vector<TileSize> tiles = {
    {.m = 128, .n = 192, .can_cluster_split_k = true},
    {.m = 128, .n = 192, .ping_pong = true},
    {.m = 256, .n = 128, .can_cluster_split_k = true, .adds_row_residual = false},
    {.m = 64, .n = 64, .ctas_per_sm = 2, .can_cluster_split_k = true, .loads_source = false},
};

Problem product(int64_t m, int64_t n, int64_t k) {
  Problem p;
  p.m = m;
  p.n = n;
  p.k = k;
  return p;
}

Tune tune(int m, int n, std::vector<std::pair<std::string, int64_t>> more = {}) {
  Tune t{{{"tile_m", m}, {"tile_n", n}, {"split_k", 1}, {"multicast", 0}}};
  for (const auto& [name, value] : more) {
    std::erase_if(t.values, [&, n = name](const auto& v) { return v.first == n; });
    t.values.emplace_back(name, value);
  }
  return t;
}

std::string refusal(const Problem& p, const Tune& t) {
  try {
    choice_of(p, tiles, t, sm_count);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(gemm_choices, large_product__ping_pong_offered) {
  const auto all = choices(product(16384, 1152, 1152), tiles, sm_count);
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const Choice& c) { return c.ping_pong; }));
}

TEST(gemm_choices, few_tiles_large_k__cluster_split_k_is_offered) {
  Problem p = product(256, 1152, 8192);
  const auto cluster_split_k = [&] {
    const auto all = choices(p, tiles, sm_count);
    return std::any_of(all.begin(), all.end(), [](const Choice& c) { return c.cluster_split_k; });
  };
  EXPECT_TRUE(cluster_split_k());
  p.form = Form::tn;
  p.row_sums = true;
  EXPECT_TRUE(cluster_split_k());
}

TEST(gemm_choices, row_sums_of_a_huge_gemm__are_offered_without_split_k) {
  Problem p = product(int64_t{1} << 17, int64_t{1} << 17, 4096);
  p.form = Form::tn;
  p.row_sums = true;
  const auto all = choices(p, tiles, sm_count);
  ASSERT_FALSE(all.empty());
  for (const Choice& c : all) EXPECT_EQ(c.split_k, 1);
  EXPECT_EQ(refusal(p, {}), "");
  const std::vector<TileSize> none;
  expect_error([&] { choice_of(p, none, {}, sm_count); },
               "gemm: no tiles for a product of 131072x131072x4096");
}

TEST(gemm_choices, few_tiles_many_steps__more_stages_offered) {
  const auto one_cta_per_sm = [&](int64_t m) {
    const auto all = choices(product(m, 1152, 1152), tiles, sm_count);
    return std::any_of(all.begin(), all.end(), [](const Choice& c) { return c.one_cta_per_sm; });
  };
  EXPECT_TRUE(one_cta_per_sm(64));
  EXPECT_FALSE(one_cta_per_sm(16384));
}

TEST(gemm_choices, residual__only_tiles_that_add) {
  Problem p = product(512, 512, 512);
  p.residual = true;
  for (const Choice& c : choices(p, tiles, sm_count)) EXPECT_NE(c.tile_m, 64);
  p.residual_rows = 64;
  for (const Choice& c : choices(p, tiles, sm_count)) EXPECT_NE(c.tile_m, 256);
}

TEST(gemm_choice_of, offered_tune__same_choice) {
  const Choice c = choice_of(product(256, 1152, 8192), tiles,
                             tune(128, 192, {{"split_k", 4}, {"cluster_split_k", 1}}), sm_count);
  EXPECT_TRUE(c.cluster_split_k);
  EXPECT_EQ(c.split_k, 4);
}

TEST(gemm_choice_of, what_tiles_cannot_do__error) {
  const Problem plain = product(512, 512, 512);
  EXPECT_EQ(refusal(plain, tune(128, 192)), "");
  EXPECT_EQ(refusal(plain, tune(96, 96)), "gemm: no kernel for tiles of 96x96");
  EXPECT_NE(refusal(plain, tune(256, 128, {{"ping_pong", 1}})), "");
  EXPECT_NE(refusal(plain, tune(128, 192, {{"split_k", 0}})), "");
  EXPECT_NE(refusal(plain, tune(128, 192, {{"split_k", 9}})), "") << "8 blocks of k";
  EXPECT_NE(refusal(plain, tune(128, 192, {{"multicast", 3}})), "");
  EXPECT_NE(refusal(plain, tune(128, 192, {{"cluster_split_k", 1}})), "") << "of one split";
  EXPECT_NE(
      refusal(plain, tune(128, 192, {{"split_k", 2}, {"multicast", 1}, {"cluster_split_k", 1}})),
      "");
  EXPECT_NE(
      refusal(plain, tune(128, 192, {{"split_k", 2}, {"ping_pong", 1}, {"cluster_split_k", 1}})),
      "");
  EXPECT_NE(
      refusal(product(512, 512, 1024), tune(128, 192, {{"split_k", 9}, {"cluster_split_k", 1}})),
      "");
  EXPECT_NE(refusal(plain, tune(128, 192, {{"one_cta_per_sm", 1}})), "") << "made for one";
  EXPECT_EQ(refusal(plain, tune(64, 64, {{"one_cta_per_sm", 1}})), "");
  Problem p = plain;
  p.residual = true;
  EXPECT_NE(refusal(p, tune(64, 64)), "");
  EXPECT_EQ(refusal(p, tune(256, 128)), "");
  p.residual_rows = 16;
  EXPECT_NE(refusal(p, tune(256, 128)), "");
  p = plain;
  p.post = Post::activation_grad;
  EXPECT_NE(refusal(p, tune(64, 64)), "");
}

}  // namespace
}  // namespace ebb::cuda::gemm
