#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json_size.h"
#include "base/names.h"
#include "base/parse_json.h"
#include "base/seed.h"

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

Json number_json(double v) { return std::isfinite(v) ? Json(v) : Json(number_text(v)); }

struct Writer {
  Json operator()(const int64_t* v) const { return *v; }
  Json operator()(const double* v) const { return number_json(*v); }
  Json operator()(const bool* v) const { return *v; }
  Json operator()(const std::string* v) const { return *v; }
  Json operator()(const std::vector<int64_t>* v) const { return *v; }
  Json operator()(const std::vector<double>* v) const {
    Json out = Json::array();
    for (const double x : *v) out.push_back(number_json(x));
    return out;
  }
  Json operator()(const TextValue* v) const {
    if (const auto* seed = dynamic_cast<const Seed*>(v)) return Json(uint64_t{*seed});
    return v->text();
  }
};

// Reads one value; gives the assignment, to be done when all values are known to be good.
struct Reader {
  const Json& json;
  std::string what;  // "<subject>: '<field>'"

  using Assign = std::function<void()>;

  void expect(bool ok, std::string_view kind, const Json& got) const {
    require(ok, what, ": expected ", kind, " (got ", got.dump(), ")");
  }
  int64_t integer(const Json& j) const {
    const bool fits = j.is_number_unsigned() ? j.get<uint64_t>() <= INT64_MAX : true;
    expect(j.is_number_integer() && fits, "a whole number", j);
    return j.get<int64_t>();
  }
  double number(const Json& j) const {
    if (j.is_string()) return parse_number(j.get<std::string>(), what);
    expect(j.is_number(), "a number", j);
    return j.get<double>();
  }

  Assign operator()(int64_t* v) const {
    return [v, x = integer(json)] { *v = x; };
  }
  Assign operator()(double* v) const {
    return [v, x = number(json)] { *v = x; };
  }
  Assign operator()(bool* v) const {
    expect(json.is_boolean(), "true or false", json);
    return [v, x = json.get<bool>()] { *v = x; };
  }
  Assign operator()(std::string* v) const {
    expect(json.is_string(), "a string", json);
    return [v, x = json.get<std::string>()] { *v = x; };
  }
  Assign operator()(std::vector<int64_t>* v) const {
    expect(json.is_array(), "a list of whole numbers", json);
    std::vector<int64_t> x;
    for (const Json& j : json) x.push_back(integer(j));
    return [v, x] { *v = x; };
  }
  Assign operator()(std::vector<double>* v) const {
    expect(json.is_array(), "a list of numbers", json);
    std::vector<double> x;
    for (const Json& j : json) x.push_back(number(j));
    return [v, x] { *v = x; };
  }
  Assign operator()(TextValue* v) const {
    if (auto* seed = dynamic_cast<Seed*>(v)) {
      const bool draws = json == -1 && dynamic_cast<DrawableSeed*>(v) != nullptr;
      expect(json.is_number_unsigned() || draws, seed->rule(), json);
      return [seed, x = json.dump()] { seed->parse(x); };
    }
    expect(json.is_string(), "a string", json);
    return [v, x = json.get<std::string>()] { v->parse(x); };
  }
};

// "unexpected ',' (line 2, column 14)". The library's text is the reason behind a dash, then what
// it read last, which may be long or no text at all.
std::string syntax_fault(const Json::parse_error& e, std::string_view text) {
  const std::string_view read = text.substr(0, std::max<size_t>(e.byte, 1) - 1);
  const auto line = 1 + std::count(read.begin(), read.end(), '\n');
  const size_t column = read.size() - (read.rfind('\n') + 1) + 1;
  std::string reason = e.what();
  const size_t dash = reason.find(" - ");
  reason = dash == std::string::npos ? "syntax error" : reason.substr(dash + 3);
  reason = reason.substr(0, reason.find("; last read"));
  constexpr size_t most = 24;
  std::string_view before = read.substr(read.size() - std::min(column - 1, most));
  const auto inside_letter = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  while (!before.empty() && inside_letter(before.front())) before.remove_prefix(1);
  before = trimmed(before);
  return str("not JSON: ", reason, " (line ", line, ", column ", column,
             before.empty() ? "" : str(", behind ", before), ")");
}

// Reads `text`; the result is what is wrong with it, or "". Numbers may be too large to be held.
std::string read(std::string_view text, const Json::parser_callback_t& look, Json& out) {
  const JsonSize size = json_size(text);
  if (size.depth > json_depth_limit)
    return str("must be nested at most ", json_depth_limit, " deep");
  if (size.names > json_names_limit)
    return str("an object must have at most ", json_names_limit, " names (got ", size.names, ")");
  try {
    out = Json::parse(text, look);
    return "";
  } catch (const Json::parse_error& e) {
    return syntax_fault(e, text);
  } catch (const Json::out_of_range& e) {
    const std::string reason = e.what();  // "[name.number] number overflow parsing '1e999'"
    return "not JSON that can be held: " +
           reason.substr(std::min(reason.find("] ") + 2, reason.size()));
  }
}

Json parse(std::string_view text, std::string_view subject) {
  std::set<std::string> seen;
  // A JSON object may hold a name twice; here that is a mistake.
  const auto once = [&](int depth, Json::parse_event_t event, Json& j) {
    if (event == Json::parse_event_t::key && depth == 1)
      require(seen.insert(j.get<std::string>()).second, subject, ": ", j.dump(),
              " is given more than once");
    return true;
  };
  Json out;
  const std::string fault = read(text, once, out);
  require(fault.empty(), subject, ": ", fault);
  return out;
}

std::string dump(const Json& j, int indent) {
  return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

bool nested_too_deep(std::string_view text) { return json_size(text).depth > json_depth_limit; }

JsonObject json_object(std::string_view text) {
  std::map<int, std::set<std::string>> seen;  // of the objects that are open, by depth
  std::string repeated;
  const auto look = [&](int depth, Json::parse_event_t event, Json& j) {
    if (event == Json::parse_event_t::object_start) seen[depth + 1].clear();
    if (event == Json::parse_event_t::key && !seen[depth].insert(j.get<std::string>()).second)
      repeated = j.dump();
    return true;
  };
  JsonObject out;
  out.fault = read(text, look, out.value);
  if (out.fault.empty() && !repeated.empty()) out.fault = repeated + " is given more than once";
  if (out.fault.empty() && !out.value.is_object()) out.fault = "must be a JSON object";
  if (!out.fault.empty()) out.value = {};
  return out;
}

std::string fields_json(const std::vector<Field>& fields) {
  Json out = Json::object();
  for (const Field& f : fields) out[f.name] = std::visit(Writer{}, f.ref);
  return dump(out, 2);
}

std::vector<std::string> set_fields_json(const std::vector<Field>& fields, std::string_view text,
                                         std::string_view subject) {
  const Json json = parse(text, subject);
  require(json.is_object(), subject, ": expected a JSON object (got ", json.type_name(), ")");
  std::vector<Reader::Assign> assign;
  for (const auto& [name, value] : json.items()) {
    const Field& field = find_field(fields, name, subject);
    assign.push_back(std::visit(Reader{value, str(subject, ": '", name, "'")}, field.ref));
  }
  for (const Reader::Assign& a : assign) a();
  std::vector<std::string> stayed;
  for (const Field& f : fields)
    if (!json.contains(f.name)) stayed.push_back(f.name);
  return stayed;
}

std::string strings_json(const std::vector<std::string>& strings) {
  return dump(Json(strings), -1);
}

std::vector<std::string> strings_from_json(std::string_view text, std::string_view subject) {
  const Json json = parse(text, subject);
  require(json.is_array(), subject, ": expected a list of strings (got ", json.type_name(), ")");
  std::vector<std::string> out;
  for (const Json& j : json) {
    require(j.is_string(), subject, ": expected a list of strings (got ", j.dump(), ")");
    out.push_back(j.get<std::string>());
  }
  return out;
}

}  // namespace ebb
