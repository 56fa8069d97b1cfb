// Styles: the file, what they make of prompts, and what A1111's clients are told.
#include "apps/server/styles.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

std::vector<server::Style> read(const std::string& text) {
  const Folder folder;
  put_file(folder / "styles.csv", text);
  return server::read_styles(folder / "styles.csv");
}

std::string fault(const std::string& text) {
  return error_of([&] { read(text); });
}

class StylesServer : public ::testing::Test {
 protected:
  json info(const json& styles, const char* prompt = "a fox") const {
    const auto a = server_.post("/sdapi/v1/txt2img", {{"prompt", prompt},
                                                      {"negative_prompt", "dog"},
                                                      {"steps", 1},
                                                      {"width", 64},
                                                      {"height", 64},
                                                      {"styles", styles}});
    EXPECT_EQ(a.status, 200) << a.body;
    return json::parse(a.json().value("info", ""), nullptr, false);
  }
  Folder folder_;
  TestServer server_{folder_.path(), 1, [](auto& o) {
                       o.styles = {{"oil", "oil painting of {prompt}, thick", "photo"},
                                   {"calm", "calm", ""},
                                   {"twice", "{prompt}{prompt}", ""}};
                     }};
};

}  // namespace

TEST(styles, file_of_a1111__is_read) {
  const auto all = read(
      "\xef\xbb\xbfname,prompt,negative_prompt\r\n"
      "oil,\"oil, \"\"thick\"\"\nof {prompt}\",photo\r\n"
      "\r\n"
      "short,calm\r\n"
      "last,,\"x\"");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].prompt, "oil, \"thick\"\nof {prompt}");
  EXPECT_EQ(all[0].negative, "photo");
  EXPECT_EQ(all[1].prompt, "calm");
  EXPECT_EQ(all[1].negative, "");
  EXPECT_EQ(all[2].negative, "x");
  EXPECT_EQ(read("negative_prompt,other,text,name\na,b,c,d\n")[0].prompt, "c") << "the old name";
  EXPECT_TRUE(read("name,prompt,negative_prompt").empty());
}

TEST(styles, broken_files__are_told_with_the_line) {
  EXPECT_NE(fault("").find("first line"), std::string::npos) << fault("");
  EXPECT_NE(fault("a,b\n").find("first line"), std::string::npos);
  const std::string head = "name,prompt,negative_prompt\n";
  EXPECT_NE(fault(head + "a,\"b").find("line 2"), std::string::npos);
  EXPECT_NE(fault(head + "a,\"b\nc\"d,e\n").find("line 3"), std::string::npos);
  EXPECT_NE(fault(head + "a,b,c\na,d,e\n").find("line 3"), std::string::npos);
  EXPECT_NE(fault(head + "a,b,c,d\n").find("4 columns"), std::string::npos);
  EXPECT_NE(fault(head + ",b,c\n").find("no name"), std::string::npos);
  EXPECT_NE(fault(head + ",b,c\n").find("styles.csv"), std::string::npos);
}

TEST(styles, text__goes_to_the_place_or_before_the_style) {
  EXPECT_EQ(server::with_style("a fox", "oil of {prompt}, {prompt}", 100), "oil of a fox, a fox");
  EXPECT_EQ(server::with_style("a {prompt}", "oil of {prompt}", 100), "oil of a {prompt}");
  EXPECT_EQ(server::with_style(" a fox ", " calm ", 100), "a fox, calm");
  EXPECT_EQ(server::with_style("", "calm", 100), "calm");
  EXPECT_EQ(server::with_style("a fox", "", 100), "a fox");
}

TEST(styles, text_that_would_be_too_long__is_not_made) {
  EXPECT_EQ(server::with_style("abc", "{prompt} {prompt}", 7), "abc abc");
  EXPECT_THROW(server::with_style("abc", "{prompt} {prompt}", 6), Error);
  EXPECT_EQ(server::with_style("abc", "d", 6), "abc, d");
  EXPECT_THROW(server::with_style("abc", "d", 5), Error);
}

TEST_F(StylesServer, styles_of_a_request__change_both_prompts_in_their_order) {
  const json made = info({"calm", "oil", "None"});
  EXPECT_EQ(made["prompt"], "oil painting of a fox, calm, thick");
  EXPECT_EQ(made["negative_prompt"], "dog, photo");
  EXPECT_EQ(made["styles"], json({"calm", "oil", "None"}));
  EXPECT_EQ(info(json::array())["prompt"], "a fox");
  EXPECT_EQ(info(nullptr)["styles"], json::array());
  const json list = server_.get("/sdapi/v1/prompt-styles").json();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0]["name"], "oil");
  EXPECT_EQ(list[0]["negative_prompt"], "photo");
}

TEST_F(StylesServer, style_that_there_is_not__422_and_the_nearest_name) {
  const auto answer = [&](const json& styles) {
    return server_.post("/sdapi/v1/txt2img", {{"prompt", "a fox"}, {"styles", styles}});
  };
  const auto a = answer({"calmm"});
  EXPECT_EQ(a.status, 422);
  EXPECT_NE(a.body.find("there is no style 'calmm'"), std::string::npos) << a.body;
  EXPECT_NE(a.body.find("'calm'"), std::string::npos) << a.body;
  EXPECT_EQ(answer({5}).status, 422);
  EXPECT_EQ(answer({std::string(100000, 'x')}).status, 422);
  EXPECT_LT(answer({std::string(100000, 'x')}).body.size(), 10000u);
}

// Each doubles the prompt: 30 of them would take gigabytes.
TEST_F(StylesServer, styles_that_make_more_and_more_text__are_bounded_and_named) {
  const auto answer = [&](size_t count) {
    return server_.post("/sdapi/v1/txt2img",
                        {{"prompt", std::string(1000, 'x')},
                         {"size", "8x8"},
                         {"steps", 1},
                         {"styles", std::vector<std::string>(count, "twice")}});
  };
  const auto long_text = answer(30);
  EXPECT_EQ(long_text.status, 413) << long_text.body.substr(0, 1000);
  EXPECT_NE(long_text.body.find("styles: 'twice': with it the text would have"), std::string::npos)
      << long_text.body.substr(0, 1000);
  EXPECT_NE(long_text.body.find("more than 65536"), std::string::npos);
  const auto many = server_.post(
      "/sdapi/v1/txt2img", {{"prompt", "x"}, {"styles", std::vector<std::string>(65, "None")}});
  EXPECT_EQ(many.status, 422);
  EXPECT_NE(many.body.find("more than 64 entries (got 65)"), std::string::npos) << many.body;
}

}  // namespace ebb::testing
