#include "text/prompt.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "support/golden_file.h"
#include "support/hostile.h"
#include "text/emphasis.h"
#include "text/prompt_schedule.h"

namespace ebb::text {
namespace {

using namespace ebb::testing;
using nlohmann::json;

const json& golden() {
  static const json all = read_golden("prompts");
  return all;
}

std::vector<std::string> warnings_of(std::string_view text,
                                     PromptSyntax syntax = PromptSyntax::a1111) {
  return parse_prompt(text, syntax).warnings;
}

// ---- parts, tags, comments ----

TEST(Prompt, parts__are_those_of_a1111) {
  for (const json& one : golden()["parts"]) {
    const Prompt prompt = parse_prompt(one[0].get<std::string>(), PromptSyntax::a1111);
    json parts = json::array();
    for (const PromptPart& p : prompt.parts) parts.push_back({p.text, p.weight});
    EXPECT_EQ(parts, one[1]) << one[0];
  }
}

TEST(Prompt, negative__has_one_part) {
  const Prompt prompt = parse_prompt("a AND b :2", PromptSyntax::a1111, true);
  ASSERT_EQ(prompt.parts.size(), 1u);
  EXPECT_EQ(prompt.parts[0].text, "a AND b :2");
  EXPECT_EQ(prompt.parts[0].weight, 1);
}

TEST(Prompt, lora_tags__leave_the_text) {
  const Prompt p =
      parse_prompt("a <lora:one> b<lora:two:0.5>, <lora:3:0.5:.25> <lyco:four:unet=2:te=-1> c",
                   PromptSyntax::a1111);
  EXPECT_EQ(p.parts[0].text, "a  b,   c");
  ASSERT_EQ(p.loras.size(), 4u);
  const auto is = [&](size_t i, const char* name, double strength, double text_strength) {
    EXPECT_EQ(p.loras[i].name, name);
    EXPECT_EQ(p.loras[i].strength, strength);
    EXPECT_EQ(p.loras[i].text_strength, text_strength);
  };
  is(0, "one", 1, 1);
  is(1, "two", 0.5, 0.5);
  is(2, "3", 0.25, 0.5);  // the text encoders' strength stands first
  is(3, "four", 2, -1);
  EXPECT_TRUE(p.warnings.empty());
}

TEST(Prompt, tags__that_are_none_stay_text) {
  for (const char* text : {"<lora>", "<lora:>", "<lora:a", "a < b : c >", "<:x>", "<a b:c>"})
    EXPECT_EQ(parse_prompt(text, PromptSyntax::a1111).parts[0].text, text);
  EXPECT_EQ(parse_prompt("<a<lora:b:1>", PromptSyntax::a1111).parts[0].text, "<a");
}

TEST(Prompt, tags__wrong_ones_are_errors_or_warnings) {
  const auto parse = [](const char* text) { parse_prompt(text, PromptSyntax::a1111); };
  EXPECT_EQ(error_of([&] { parse("<lora:a:x>"); }),
            "prompt: a weight must be a finite number, found 'x'  '<lora:a:x>'");
  expect_error([&] { parse("<lora:a:inf>"); }, "must be a finite number");
  expect_error([&] { parse("<lora:a:10001>"); }, "must be a number from -10000 to 10000");
  expect_error([&] { parse("<lora::1>"); }, "must have a name");
  EXPECT_EQ(warnings_of("<hypernet:x:1>"),
            (std::vector<std::string>{
                "prompt: tags of this kind are not known: removed  '<hypernet:x:1>'"}));
  EXPECT_EQ(warnings_of("<lora:a:1:x=ALL>").size(), 1u);
  EXPECT_EQ(parse_prompt("<lora:a:1:lbw=1,0>", PromptSyntax::a1111).loras[0].block_weights, "1,0");
  EXPECT_EQ(warnings_of("<lora:a:1>", PromptSyntax::comfyui).size(), 1u);
}

TEST(Prompt, comments__are_removed_with_a_warning) {
  const Prompt p = parse_prompt("a # b\nc#d", PromptSyntax::a1111);
  EXPECT_EQ(p.parts[0].text, "a \nc");
  EXPECT_EQ(
      p.warnings,
      (std::vector<std::string>{"prompt: 2 comments removed, from # to the end of the line"}));
  // A line of its own goes with the end of the line before it.
  EXPECT_EQ(parse_prompt("a\n# b\nc", PromptSyntax::a1111).parts[0].text, "a\nc");
  EXPECT_EQ(parse_prompt("#a\n#b", PromptSyntax::a1111).parts[0].text, "");
  EXPECT_EQ(parse_prompt("a #1", PromptSyntax::comfyui).parts[0].text, "a #1");
}

TEST(Prompt, syntax__has_a_name) {
  for (const auto s : {PromptSyntax::a1111, PromptSyntax::comfyui, PromptSyntax::diffusers})
    EXPECT_EQ(prompt_syntax(prompt_syntax_name(s)), s);
  expect_error([] { prompt_syntax("a111"); }, "did you mean 'a1111'");
}

TEST(Prompt, invalid_utf8__is_replaced_with_a_warning) {
  const Prompt p = parse_prompt("a\xff", PromptSyntax::diffusers);
  EXPECT_EQ(p.parts[0].text, "a\uFFFD");
  EXPECT_EQ(p.warnings.size(), 1u);
}

// ---- editing ----

TEST(PromptSchedule, texts__are_those_of_a1111) {
  for (const json& one : golden()["schedules"]) {
    const Steps steps{one[1], one[2]};
    json texts = json::array();
    for (const ScheduledText& t : schedule_prompt(one[0].get<std::string>(), steps))
      texts.push_back({t.end_step, t.text});
    EXPECT_EQ(texts, one[3]) << one[0] << " " << one[1];
  }
}

// What A1111's own parser takes for text or not, depending on what stands beside, is text here by
// one rule: what encloses a lone bracket.
TEST(PromptSchedule, lone_brackets__are_text_and_what_encloses_them) {
  const auto last = [](std::string_view text) { return schedule_prompt(text, {10}).back().text; };
  EXPECT_EQ(last("[a:b:3]]"), "b]");
  EXPECT_EQ(last("[[a:b:3]"), "[b");
  EXPECT_EQ(last("[x:(y:[a:b:3]:5]"), "[x:(y:b:5]");
  EXPECT_EQ(last("[x:y)[a:b:3]"), "[x:y)b");
}

TEST(PromptSchedule, hostile_prompts__end_soon) {
  const auto repeated = [&](std::string_view piece) {
    std::string out;
    while (out.size() < testing::hostile_size) out += piece;
    return out;
  };
  EXPECT_EQ(schedule_prompt(repeated("["), {20}).size(), 1u);
  EXPECT_EQ(schedule_prompt(repeated("(") + repeated(")"), {20}).size(), 1u);
  EXPECT_EQ(schedule_prompt(repeated("[a:b:3]"), {20}).size(), 2u);
  EXPECT_EQ(schedule_prompt(repeated("[a:") + "x", {20}).size(), 1u);
  EXPECT_EQ(schedule_prompt(repeated("[a") + repeated(":3]"), {20}).size(), 2u);
  EXPECT_EQ(schedule_prompt(repeated("[|]"), {20}).size(), 1u);
  expect_error([&] { schedule_prompt(repeated("[a|b]"), {1000}); }, "prompt: editing must make");
  expect_error([&] { schedule_prompt("a", {0}); }, "at least one step");
}

// ---- emphasis ----

json pieces_of(const std::vector<WeightedText>& pieces) {
  json out = json::array();
  for (const WeightedText& p : pieces) {
    if (p.new_chunk) {
      out.push_back({"BREAK", -1});
    } else {
      out.push_back({p.text, p.weight});
    }
  }
  return out;
}

TEST(Emphasis, a1111__has_its_pieces_and_weights) {
  for (const json& one : golden()["a1111_emphasis"]) {
    std::vector<std::string> warnings;
    const auto pieces = a1111_emphasis(one[0].get<std::string>(), warnings);
    EXPECT_EQ(pieces_of(pieces), one[1]) << one[0];  // weights bit for bit
  }
}

TEST(Emphasis, comfyui__has_its_pieces_and_weights) {
  for (const json& one : golden()["comfyui_emphasis"]) {
    json got = pieces_of(comfyui_emphasis(one[0].get<std::string>()));
    EXPECT_EQ(got, one[1]) << one[0];
  }
}

TEST(Emphasis, break_in_brackets__is_a_word_and_warned_of) {
  std::vector<std::string> warnings;
  const auto pieces = a1111_emphasis("(a BREAK b:1.2)", warnings);
  EXPECT_EQ(pieces[1], (WeightedText{"BREAK", -1.2}));
  EXPECT_EQ(warnings.size(), 1u);
}

TEST(Emphasis, digits__are_those_of_any_script) {
  std::vector<std::string> w;
  EXPECT_EQ(a1111_emphasis("(a:\u0661.\u0665)", w)[0].weight, 1.5);
  EXPECT_EQ(comfyui_emphasis("(a:\U0001d7d8.\U0001d7f1)")[0].weight, 0.5);
  EXPECT_EQ(parse_prompt("a :\uff12", PromptSyntax::a1111).parts[0].weight, 2);
}

TEST(Emphasis, wrong_weights__are_errors) {
  std::vector<std::string> w;
  EXPECT_EQ(error_of([&] { a1111_emphasis("x (a:1.2.3)", w); }),
            "prompt: a weight must be a number, found '1.2.3' (character 6)");
  expect_error([&] { a1111_emphasis("(a:" + std::string(350, '9') + ")", w); }, "must be finite");
  expect_error([&] { comfyui_emphasis("(a:inf)"); }, "prompt: a weight must be finite (inf)  'a'");
}

TEST(Emphasis, hostile_prompts__are_errors_or_results) {
  std::vector<std::string> w;
  const std::string open(10'000, '('), close(10'000, ')');
  expect_error([&] { a1111_emphasis(open + "a" + close, w); }, "must be finite (inf)");
  EXPECT_EQ(a1111_emphasis(open, w).size(), 1u);
  expect_error([&] { comfyui_emphasis(open + "a" + close); }, "must not be nested deeper than 200");
  EXPECT_EQ(comfyui_emphasis(open).size(), 1u);
  std::string many;
  for (int i = 0; i < 350'000; ++i) many += "(a";
  expect_error([&] { a1111_emphasis(many, w); }, "must not be nested this deeply");
  std::string breaks;
  for (int i = 0; i < 150'000; ++i) breaks += " BREAK";
  EXPECT_EQ(a1111_emphasis(breaks, w).size(), 300'001u);
  EXPECT_EQ(comfyui_emphasis(std::string(testing::hostile_size, ')')).size(), 1u);
}

}  // namespace
}  // namespace ebb::text
