#include "pipeline/infotext.h"

#include <gtest/gtest.h>

#include "pipeline/parameters.h"

namespace ebb {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

void expect_same(const Infotext& a, const Infotext& b) {
  EXPECT_EQ(a.prompt, b.prompt);
  EXPECT_EQ(a.negative, b.negative);
  EXPECT_EQ(a.values, b.values);
}

TEST(Infotext, parse__gives_what_was_written) {
  const Values values{{"Steps", "20"},
                      {"Sampler", "DPM++ 2M"},
                      {"Model", "a, b: \"c\""},
                      {"Lora hashes", "x: 12, y: 34"},
                      {"Size", "512x768"}};
  for (const Infotext& t :
       {Infotext{"a fox", "", values}, Infotext{"a\nfox, [a:b:2]", "bad\nworse: 1", values},
        Infotext{"", "only negative", values}, Infotext{"\u96ea", "\u00fc", values},
        Infotext{"", "", values}, Infotext{"no settings", "at all", {}}})
    expect_same(parse_infotext(infotext(t)), t);
}

// The web UI's names, by whichever name of ours.
TEST(Infotext, samplers__are_named_as_in_the_web_uis_menu) {
  const auto named = [](const std::string& sampler) {
    PictureParameters p;
    p.options.sampler = sampler;
    return parse_infotext(parameters_text(p)).value("Sampler");
  };
  for (const char* name : {"euler_ancestral", "euler_a", "Euler a"})
    EXPECT_EQ(named(name), "Euler a") << name;
  EXPECT_EQ(named("dpm_2_ancestral"), "DPM2 a");
  EXPECT_EQ(named("dpmpp_2m_sde"), "DPM++ 2M SDE");
  EXPECT_EQ(named("ddim"), "DDIM");
  EXPECT_EQ(named("ddim_trailing"), "ddim_trailing");  // of the same function, with other options
}

TEST(Infotext, values__are_quoted_where_they_hold_separators) {
  EXPECT_EQ(infotext({"p", "n", {{"A", "1"}, {"B", "x,y"}, {"C", "k: v"}}}),
            "p\nNegative prompt: n\nA: 1, B: \"x,y\", C: \"k: v\"");
}

// The last line is settings from three pairs on.
TEST(Infotext, last_line_of_few_pairs__belongs_to_the_prompt) {
  const Infotext t = parse_infotext("a fox\nstyle: old, light: low");
  EXPECT_EQ(t.prompt, "a fox\nstyle: old, light: low");
  EXPECT_TRUE(t.values.empty());
  EXPECT_EQ(parse_infotext("Steps: 1, Seed: 2, Size: 3x4").value("Seed"), "2");
  EXPECT_EQ(parse_infotext("a\nSteps: 1, junk, Seed: 2, Size: 3x4").value("Seed"), "2");
  EXPECT_EQ(parse_infotext("a\nSteps: 1, Open: \"x, Seed: 2, Size: 3x4").value("Seed"), "2");
}

TEST(Infotext, any_bytes__are_a_text) {
  const std::string letters =
      "a,:\"\\\n \xff"
      "Negative prompt:{}\0";
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::string text;
    for (uint64_t i = 0; i < seed % 60; ++i)
      text += letters[(seed * 2654435761u + i * i * 40503u + i * 977u) % letters.size()];
    const Infotext once = parse_infotext(text);
    EXPECT_LE(once.prompt.size() + once.negative.size(), 3 * text.size());
  }
}

}  // namespace
}  // namespace ebb
