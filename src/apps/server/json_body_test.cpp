// JSON of requests: what would take long to read is refused.
#include "apps/server/json_body.h"

#include <gtest/gtest.h>

#include "apps/server/fault.h"
#include "apps/server/options.h"
#include "base/error.h"
#include "support/files.h"

namespace ebb::server {
namespace {

std::string object_of(int names) {
  std::string out;
  for (int i = 0; i < names; ++i) out += str(i == 0 ? "" : ",", "\"n", i, "\":", i);
  return "{" + out + "}";
}

std::string fault_of(const std::string& text) {
  try {
    read_json(text);
  } catch (const HttpFault& f) {
    EXPECT_EQ(f.status, 400);
    return f.what();
  }
  return "";
}

}  // namespace

// Each name is looked for among those before it.
TEST(server_json, names_of_an_object__are_bounded) {
  EXPECT_EQ(read_json(object_of(2048)).size(), 2048u);
  EXPECT_NE(fault_of(object_of(2049)).find("at most 2048"), std::string::npos);
  EXPECT_NE(fault_of("{\"a\":[" + object_of(2049) + "]}").find("at most"), std::string::npos);
  std::string many;  // of several objects, and signs that are none of JSON
  for (int i = 0; i < 3; ++i) many += str(i == 0 ? "" : ",", "\":", i, "\":", object_of(1500));
  EXPECT_EQ(read_json("{" + many + "}").size(), 3u);
}

TEST(server_json, what_is_none__says_where) {
  EXPECT_EQ(fault_of("{\"a\": 5,\n\"b\":, \"c\": 1}").find("the body is not JSON: unexpected ','"),
            0u);
  EXPECT_NE(fault_of("{\"a\": 5,\n\"b\":, \"c\": 1}").find("(line 2, column "), std::string::npos);
  EXPECT_NE(fault_of("{\"a\": 1e999}").find("not JSON that can be held"), std::string::npos);
}

TEST(server_json, given__is_what_has_something_in_it) {
  const Json body = {{"a", ""}, {"b", Json::array()}, {"c", nullptr}, {"d", "x"}, {"e", 0}};
  JsonReader r(body);
  for (const char* name : {"a", "b", "c", "f"}) EXPECT_EQ(r.given(name), nullptr) << name;
  for (const char* name : {"d", "e"}) EXPECT_NE(r.given(name), nullptr) << name;
}

TEST(server_options, of_too_great_a_number__are_refused) {
  const ebb::testing::Folder folder;
  Options options(folder / "options.json");
  Json many = read_json(object_of(1000));
  EXPECT_THROW(options.set(many), HttpFault) << "there are some before";
  EXPECT_EQ(options.get("n0"), Json());
  options.set(read_json(object_of(900)));
  EXPECT_EQ(options.get("n899"), 899);
  ebb::testing::put_file(folder / "options.json", object_of(1000));
  EXPECT_THROW(Options(folder / "options.json"), Error);
  ebb::testing::put_file(folder / "options.json", object_of(2049));
  ebb::testing::expect_error([&] { Options(folder / "options.json"); },
                             "serve: --options: an object must have at most 2048 names (got 2049)");
}

TEST(server_options, that_cannot_be_written__are_as_before) {
  const ebb::testing::Folder folder;
  Options options(folder / "none/options.json");
  EXPECT_THROW(options.set({{"jpeg_quality", 7}}), HttpFault);
  EXPECT_EQ(options.get("jpeg_quality"), 80);
}

}  // namespace ebb::server
