// JSON of requests: bounded, and read leniently as other programs' clients send it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::server {

using Json = nlohmann::ordered_json;

// An object; {} of an empty text. Throws HttpFault 400: for what is no JSON or no object, deeper
// than 32 levels, of more than 200,000 values or of 2,048 names in one object, which are looked
// through for each.
Json read_json(std::string_view text);
// For answers; bytes that are no UTF-8 become U+FFFD.
std::string json_text(const Json& json);
// Its beginning, for errors, in ASCII.
std::string shown_value(const Json& json);

// The fields of an object that were read: the others are told to the client.
class JsonReader {
 public:
  explicit JsonReader(const Json& object) : object_(object) {}

  // None where it is missing or null. Throw HttpFault 422, naming the field. Numbers may be
  // strings, whole numbers may be written 20.0, truths 0 and 1.
  std::optional<std::string> text(const std::string& name);
  std::optional<double> number(const std::string& name);
  std::optional<int64_t> integer(const std::string& name, int64_t least, int64_t most);
  std::optional<bool> truth(const std::string& name);
  const Json* array(const std::string& name);   // null: as above
  const Json* object(const std::string& name);  // likewise
  const Json* any(const std::string& name);
  bool has(const std::string& name) { return any(name) != nullptr; }
  // Null also for "", [] and {}, by which clients say that they give none.
  const Json* given(const std::string& name);
  // Read, and without effect on the answer whatever they say.
  void skip(std::initializer_list<const char*> names) {
    for (const char* n : names) read_.emplace_back(n);
  }
  // Not followed: told as ignored unless it is missing or one of these values.
  void ignore_unless(const std::string& name, std::initializer_list<Json> neutral);
  // Those that nobody asked for, and those that are not followed.
  std::vector<std::string> ignored() const;
  const Json& object() const { return object_; }

 private:
  const Json& object_;
  std::vector<std::string> read_, not_followed_;
};

}  // namespace ebb::server
