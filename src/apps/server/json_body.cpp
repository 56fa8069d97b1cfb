#include "apps/server/json_body.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "apps/server/fault.h"
#include "base/fields.h"
#include "base/json.h"
#include "base/json_size.h"
#include "base/names.h"
#include "base/parse_json.h"

namespace ebb::server {
namespace {

constexpr size_t most_depth = 32, most_values = 200'000;

void check_size(std::string_view text) {
  const JsonSize size = json_size(text);
  const auto at_most = [](size_t count, size_t most, const char* what) {
    if (count > most) throw HttpFault(400, "bad_json", str("JSON: ", what, ' ', most));
  };
  at_most(size.depth, most_depth, "levels within each other are at most");
  at_most(size.values, most_values, "values are at most");
  at_most(size.names, json_names_limit, "names of an object are at most");
}

std::optional<double> number_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return {};
  const auto& text = value.get_ref<const std::string&>();
  const std::string_view digits = trimmed(text);
  double out = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (error != std::errc() || end != digits.data() + digits.size()) return {};
  return out;
}

}  // namespace

Json read_json(std::string_view text) {
  if (trimmed(text).empty()) return Json::object();
  check_size(text);
  Json out = parse_json<Json>(text);
  if (out.is_discarded())
    throw HttpFault(400, "bad_json", str("the body is ", json_object(text).fault));
  if (!out.is_object()) throw HttpFault(400, "bad_json", "the body must be a JSON object");
  return out;
}

std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json* JsonReader::any(const std::string& name) {
  read_.push_back(name);
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

std::string shown_value(const Json& json) {
  constexpr size_t longest = 80;
  if (json.is_structured()) return json.is_array() ? "a list" : "an object";
  const std::string all = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  return all.size() > longest ? all.substr(0, longest) + "..." : all;
}

std::optional<std::string> JsonReader::text(const std::string& name) {
  const Json* value = any(name);
  if (!value) return {};
  if (value->is_number()) return value->dump();
  if (!value->is_string()) fail_field(name, "must be a text");
  return value->get<std::string>();
}

std::optional<double> JsonReader::number(const std::string& name) {
  const Json* value = any(name);
  if (!value || (value->is_string() && value->get_ref<const std::string&>().empty())) return {};
  const auto out = number_of(*value);
  if (!out || !std::isfinite(*out))
    fail_field(name, "must be a number (got ", shown_value(*value), ")");
  return out;
}

std::optional<int64_t> JsonReader::integer(const std::string& name, int64_t least, int64_t most) {
  const auto value = number(name);
  if (!value) return {};
  if (*value != std::floor(*value) || *value < static_cast<double>(least) ||
      *value > static_cast<double>(most))
    fail_field(name, "must be a whole number from ", least, " to ", most, " (got ",
               shown_value(object_.at(name)), ")");
  const Json& json = object_.at(name);
  return json.is_number_integer() ? json.get<int64_t>() : static_cast<int64_t>(*value);
}

std::optional<bool> JsonReader::truth(const std::string& name) {
  const Json* value = any(name);
  if (!value) return {};
  if (value->is_boolean()) return value->get<bool>();
  if (const auto n = number_of(*value); n && (*n == 0 || *n == 1)) return *n == 1;
  if (value->is_string()) {
    const std::string word = small_letters(value->get<std::string>());
    if (word == "true" || word == "false") return word == "true";
  }
  fail_field(name, "must be true or false");
}

const Json* JsonReader::given(const std::string& name) {
  const Json* value = any(name);
  return value && (value->empty() || *value == "") ? nullptr : value;
}

const Json* JsonReader::array(const std::string& name) {
  const Json* value = any(name);
  if (value && !value->is_array()) fail_field(name, "must be a list");
  return value;
}

const Json* JsonReader::object(const std::string& name) {
  const Json* value = any(name);
  if (value && !value->is_object()) fail_field(name, "must be an object");
  return value;
}

void JsonReader::ignore_unless(const std::string& name, std::initializer_list<Json> neutral) {
  const Json* value = any(name);
  if (value && std::ranges::find(neutral, *value) == neutral.end()) not_followed_.push_back(name);
}

std::vector<std::string> JsonReader::ignored() const {
  std::vector<std::string> out;
  const auto is_in = [](const auto& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  for (const auto& [name, value] : object_.items())
    if (!is_in(read_, name) || is_in(not_followed_, name)) out.push_back(name);
  return out;
}

}  // namespace ebb::server
