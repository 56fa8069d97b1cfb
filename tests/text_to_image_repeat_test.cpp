// Requests one after the other on one TextToImage: what is kept of the one before costs nothing
// again, and changes no bit.
#include <gtest/gtest.h>

#include "pipeline/text_to_image.h"
#include "support/far_device.h"
#include "support/recorded_requests.h"

namespace ebb::testing::text_to_image_repeat_test {
namespace {

struct Cost {
  int64_t sent = 0;
  int launches = 0, asked = 0;
};

class RepeatedRequests : public RecordedRequests {
 protected:
  using Q = TextToImageRequest;
  static Q small(const std::string& prompt = "a fox", uint64_t seed = 5) {
    Q q = request(run_of(1));
    q.prompt = prompt, q.options.seed = DrawableSeed(seed);
    q.options.steps = 3, q.options.noise = "ebb";
    return q;
  }
  static std::vector<float> made(TextToImage& by, const Q& q) {
    std::vector<float> out;
    RunEvents events;
    events.picture = [&](const Picture& p) {
      const auto v = p.pixels.span<float>();
      out.insert(out.end(), v.begin(), v.end());
    };
    by.run(by.resolve(q), events);
    return out;
  }
  std::vector<float> made(const Q& q) { return made(pipeline_, q); }
  static std::vector<float> made_first(const Q& q) {
    TextToImage fresh(small_checkpoint(run_of(1)), {.device = std::make_shared<FarDevice>()});
    return made(fresh, q);
  }
  Cost cost_of(const Q& q) {
    const Cost before{far_->sent, far_->launches, far_->asked};
    made(q);
    return {far_->sent - before.sent, far_->launches - before.launches, far_->asked - before.asked};
  }
  std::shared_ptr<FarDevice> far_ = std::make_shared<FarDevice>();
  TextToImage pipeline_{small_checkpoint(run_of(1)), {.device = far_}};
};

}  // namespace

TEST_F(RepeatedRequests, pictures__have_the_bits_of_the_first_request) {
  const Q a = small("a fox"), b = small("a dog", 6);
  Q larger = a, negative = a, unguided = b, edited = a, parts = a, batch = a;
  larger.size = {128, 128}, negative.negative = "snow", unguided.options.guidance = 1;
  edited.syntax = parts.syntax = text::PromptSyntax::a1111;
  edited.prompt = "a [fox:dog:2] (runs:1.3)", parts.prompt = "a fox AND a dog";
  batch.count = 3, batch.options.batch = 2;
  for (const Q& q : {a, a,        b, a,      negative, b,     b, larger, a,     a,
                     a, unguided, b, edited, edited,   parts, a, batch,  batch, a})
    EXPECT_EQ(made(q), made_first(q)) << q.prompt << " | " << q.negative;
}

// The text encoder, and the keys and values of cross-attention, are those of the request before.
TEST_F(RepeatedRequests, equal_prompts__run_the_steps_and_the_decoder_alone) {
  made(small());
  const Cost other = cost_of(small("a dog")), equal = cost_of(small("a dog", 6));
  EXPECT_EQ(equal.launches, 3 + 1);
  EXPECT_EQ(other.launches, equal.launches + 2);
  EXPECT_LT(equal.sent, other.sent - 2 * 77 * 4);
}

// Its plan of the memory is that of the one before.
TEST_F(RepeatedRequests, memory__is_asked_for_once) {
  for (int i = 0; i < 2; ++i) made(small());
  EXPECT_EQ(cost_of(small("a dog", 6)).asked, 1);
  EXPECT_EQ(cost_of(small("a dog", 7)).asked, 1);
}

// Another process may have taken it meanwhile: what is there is enough for the same request, and
// goes for another one.
TEST_F(RepeatedRequests, memory_that_is_gone__is_planned_anew_for_another_size) {
  far_ = std::make_shared<FarDevice>(int64_t{1} << 29);
  TextToImage pipeline(small_checkpoint(run_of(1)), {.device = far_});
  const std::vector<float> first = made(pipeline, small());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(made(pipeline, small()), first);
  Q larger = small();
  larger.size = {192, 192};
  auto taken = far_->allocate(far_->free_memory());
  EXPECT_EQ(made(pipeline, small()), first);
  EXPECT_EQ(made(pipeline, larger), made_first(larger));
  taken.reset();
  EXPECT_EQ(made(pipeline, small()), first);
}

}  // namespace ebb::testing::text_to_image_repeat_test
