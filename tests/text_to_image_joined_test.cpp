// Pictures of several requests in one batch, against those that each request has alone.
#include <gtest/gtest.h>

#include "diffusion/solver/run.h"
#include "pipeline/text_to_image.h"
#include "support/files.h"
#include "support/pictures.h"
#include "support/recorded_requests.h"

namespace ebb::testing::text_to_image_joined_test {
namespace {

class JoinedRequests : public RecordedRequests {
 protected:
  static TextToImageRequest small(const std::string& prompt, uint64_t seed, int64_t count = 1) {
    TextToImageRequest q = request(run_of(1));
    q.prompt = prompt, q.options.seed = DrawableSeed(seed), q.count = count;
    q.options.steps = 3, q.options.noise = "ebb";
    return q;
  }
  std::vector<ResolvedTextToImage> resolved(const std::vector<TextToImageRequest>& all) const {
    std::vector<ResolvedTextToImage> out;
    for (const auto& q : all) out.push_back(pipeline_.resolve(q));
    return out;
  }
  std::vector<Picture> alone(const TextToImageRequest& q) {
    std::vector<Picture> out;
    RunEvents events;
    events.picture = [&](Picture p) { out.push_back(std::move(p)); };
    pipeline_.run(pipeline_.resolve(q), events);
    return out;
  }
  // In batches of `most` pictures.
  std::vector<Picture> together(const std::vector<TextToImageRequest>& all, int64_t most) {
    std::vector<JoinedPicture> left;
    for (size_t i = 0; i < all.size(); ++i)
      for (int64_t k = 0; k < all[i].count; ++k) left.push_back({i, k});
    std::vector<Picture> out;
    JoinedEvents events;
    events.picture = [&](Picture p) { out.push_back(std::move(p)); };
    pipeline_.run_joined(resolved(all), events, [&](int64_t fit) {
      const auto n = std::min({std::ssize(left), most, fit});
      const std::vector<JoinedPicture> now(left.begin(), left.begin() + n);
      left.erase(left.begin(), left.begin() + n);
      return now;
    });
    return out;
  }
  // That each is as it is alone, up to the rounding of another batch.
  void check(const std::vector<TextToImageRequest>& all, int64_t most) {
    const auto requests = resolved(all);
    for (const auto& r : requests) EXPECT_TRUE(pipeline_.joins(requests[0])(r));
    const std::vector<Picture> made = together(all, most);
    size_t at = 0;
    for (size_t i = 0; i < all.size(); ++i)
      for (const Picture& expected : alone(all[i])) {
        ASSERT_LT(at, made.size());
        const Picture& p = made[at++];
        EXPECT_EQ(p.request, i);
        EXPECT_EQ(p.index, expected.index);
        ASSERT_EQ(p.pixels.shape(), expected.pixels.shape());
        const auto a = p.latents.span<float>(), b = expected.latents.span<float>();
        for (size_t k = 0; k < a.size(); ++k) ASSERT_NEAR(a[k], b[k], 1e-4) << i << ' ' << k;
      }
    EXPECT_EQ(at, made.size());
  }
  Context context_ = open_context("cpu", {.threads = 2});
  TextToImage pipeline_{small_checkpoint(run_of(1)), context_};
};

}  // namespace

TEST_F(JoinedRequests, prompts_and_seeds__are_each_pictures_own) {
  std::vector<TextToImageRequest> all = {small("a fox", 5, 2), small("a dog", 5),
                                         small("a cat", 8)};
  all[2].negative = "snow", all[2].first_image = 3;
  check(all, 4);
  check(all, 3);
}

// Alone, its noise is drawn in the plan.
TEST_F(JoinedRequests, sampler_with_noise__draws_each_pictures_own) {
  std::vector<TextToImageRequest> all = {small("a fox", 5, 2), small("a dog", 6)};
  for (auto& q : all) q.options.sampler = "euler_ancestral";
  check(all, 3);
  all[0].count = 1;  // a generator draws for all pictures of a request
  for (auto& q : all) q.options.noise = "torch_cpu";
  check(all, 3);
  for (auto& q : all) q.options.sampler = "dpmpp_2m_sde", q.options.dialect = "comfy";
  check(all, 3);
}

TEST_F(JoinedRequests, pictures_of_one_generator__are_in_a_batch_of_their_own) {
  std::vector<TextToImageRequest> all = {small("a fox", 5, 2), small("a dog", 6)};
  for (const auto& [noise, joins] : {std::pair{"ebb", true}, std::pair{"torch_cpu", false}}) {
    for (auto& q : all) q.options.noise = noise, q.options.sampler = "euler_ancestral";
    const auto r = resolved(all);
    EXPECT_EQ(pipeline_.joins(r[0])(r[1]), joins) << noise;
    EXPECT_EQ(pipeline_.joins(r[1])(r[0]), joins) << noise;
    EXPECT_TRUE(pipeline_.joins(r[1])(r[1])) << noise;
  }
}

TEST_F(JoinedRequests, pictures_to_start_from__are_each_requests_own) {
  std::vector<TextToImageRequest> all = {small("a fox", 5), small("a dog", 6, 2)};
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].init = InitImage{.picture = gradient(64 + 8 * static_cast<int64_t>(i), 64, 3)};
    all[i].size = {64, 64};
  }
  check(all, 3);
  all[1].init.reset();
  const auto r = resolved(all);
  EXPECT_FALSE(pipeline_.joins(r[0])(r[1]));
}

TEST_F(JoinedRequests, second_pass__goes_on_with_each_picture) {
  std::vector<TextToImageRequest> all = {small("a fox", 5), small("a dog", 6)};
  for (auto& q : all) q.hires = Hires{};
  check(all, 2);
}

TEST_F(JoinedRequests, what_a_batch_shares__must_be_the_same) {
  const auto joins = [&](const auto& change) {
    std::vector<TextToImageRequest> two = {small("a fox", 5), small("a dog", 6)};
    change(two[1]);
    const auto r = resolved(two);
    return pipeline_.joins(r[0])(r[1]);
  };
  using Q = TextToImageRequest;
  EXPECT_TRUE(joins([](Q&) {}));
  EXPECT_TRUE(joins([](Q& q) { q.count = 3, q.options.batch = 2; }));
  EXPECT_FALSE(joins([](Q& q) { q.options.steps = 4; }));
  EXPECT_FALSE(joins([](Q& q) { q.options.guidance = 2; }));
  EXPECT_FALSE(joins([](Q& q) { q.options.sampler = "heun"; }));
  EXPECT_FALSE(joins([](Q& q) { q.size = {128, 128}; }));
  EXPECT_FALSE(joins([](Q& q) { q.hires = Hires{}; }));
  EXPECT_FALSE(joins([](Q& q) { q.pixels = false; }));
  EXPECT_FALSE(joins([](Q& q) { q.syntax = text::PromptSyntax::a1111, q.prompt = "[a:b:0.5]"; }));
  EXPECT_FALSE(joins([](Q& q) { q.syntax = text::PromptSyntax::a1111, q.prompt = "a AND b"; }));
  EXPECT_FALSE(joins([](Q& q) {  // more than a chunk of 75 tokens
    q.syntax = text::PromptSyntax::a1111, q.prompt.clear();
    for (int i = 0; i < 90; ++i) q.prompt += "fox ";
  }));
}

// Its steps are chosen by the error of the whole batch.
TEST_F(JoinedRequests, adaptive_sampler__is_alone) {
  std::vector<TextToImageRequest> two = {small("a fox", 5), small("a dog", 6)};
  for (auto& q : two) {
    q.options.sampler = "dpm_adaptive";
    q.options.dialect = "kdiff";
  }
  const auto r = resolved(two);
  EXPECT_FALSE(pipeline_.joins(r[0])(r[1]));
}

TEST_F(JoinedRequests, stopped__is_cancelled_and_the_next_run_is_whole) {
  const auto r = resolved({small("a fox", 5), small("a dog", 6)});
  JoinedEvents events;
  events.progress = [](const RunProgress& p) { return p.stage != Stage::sampling; };
  events.picture = [](const Picture&) { ADD_FAILURE(); };
  bool asked = false;
  EXPECT_THROW(pipeline_.run_joined(r, events,
                                    [&](int64_t) {
                                      asked = true;
                                      return std::vector<JoinedPicture>{{0, 0}, {1, 0}};
                                    }),
               Cancelled);
  EXPECT_TRUE(asked);
  check({small("a fox", 5), small("a dog", 6)}, 2);
}

}  // namespace ebb::testing::text_to_image_joined_test
