#include "apps/server/comfy/graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/fields.h"
#include "base/names.h"
#include "base/parse_json.h"

namespace ebb::server::comfy {
namespace {

constexpr size_t longest_shown = 100, longest_number = 64;
constexpr size_t most_faulty = 50, most_told = 16;  // nodes with faults, outputs that need them
constexpr double exact_most = 9007199254740992.0;   // 2^53: floats above are not all whole numbers

std::string shown(std::string_view text) { return printable(text.substr(0, longest_shown)); }

Json error_json(const std::string& type, const std::string& message, const std::string& details) {
  return {
      {"type", type}, {"message", message}, {"details", details}, {"extra_info", Json::object()}};
}

Json node_error(const std::string& class_name, const std::vector<InputFault>& faults,
                const std::vector<std::string>& shows) {
  Json errors = Json::array();
  for (const InputFault& f : faults) {
    Json info = {{"input_name", f.input}};
    if (!f.received.is_null()) info["received_value"] = f.received;
    errors.push_back({{"type", f.type},
                      {"message", f.message},
                      {"details", f.details},
                      {"extra_info", std::move(info)}});
  }
  const auto told = static_cast<std::ptrdiff_t>(std::min(shows.size(), most_told));
  return {{"errors", errors},
          {"dependent_outputs", std::vector(shows.begin(), shows.begin() + told)},
          {"class_type", class_name}};
}

struct Node {
  const NodeClass* of = nullptr;
  const Json* inputs = nullptr;
  enum class State : uint8_t { unseen, begun, done } state = State::unseen;
  std::vector<InputFault> faults = {};
  std::map<std::string, Json> plain = {};  // checked
  std::vector<std::pair<std::string, std::pair<Node*, size_t>>> links = {};
  std::vector<Value> values = {};
  std::string id = {};
};

const Json no_inputs = Json::object();

// ---- plain values
// The number in a text, or the value itself.
Json unquoted(const Json& v) {
  if (!v.is_string()) return v;
  const auto& text = v.get_ref<const std::string&>();
  return text.size() > longest_number ? v : parse_json<Json>(trimmed(text));
}

// A whole number as it is written, also as 20.0 or "20"; none for others.
std::optional<Json> whole_of(const Json& written) {
  const Json v = unquoted(written);
  if (v.is_number_integer()) return v;
  if (v.is_number_float()) {
    const double d = v.get<double>();
    if (d != std::floor(d) || std::abs(d) > exact_most) return {};
    return Json(static_cast<int64_t>(d));
  }
  return {};
}

std::optional<Json> number_of(const Json& written) {
  const Json v = unquoted(written);
  return v.is_number() && std::isfinite(v.get<double>()) ? std::optional(v) : std::nullopt;
}

InputFault wrong(const NodeInput& in, const char* type, const std::string& message,
                 const Json& received) {
  const std::string text = received.is_structured() ? "" : json_text(received);
  return {type, message, str(in.name, text.empty() ? "" : ", ", shown(text)), in.name,
          text.size() > longest_shown ? Json() : received};
}

std::optional<InputFault> check_number(const NodeInput& in, const Json& value, Json& out) {
  const auto number = in.kind == InputKind::integer ? whole_of(value) : number_of(value);
  if (!number)
    return wrong(in, "invalid_input_type",
                 str("must be a ", in.kind == InputKind::integer ? "whole " : "", "number"), value);
  const double d = number->get<double>();
  if (d < in.least)
    return wrong(in, "value_smaller_than_min", str("must be ", number_text(in.least), " or more"),
                 value);
  if (d > in.most)
    return wrong(in, "value_bigger_than_max", str("must be ", number_text(in.most), " or less"),
                 value);
  out = *number;
  return {};
}

std::optional<InputFault> check_text(const NodeInput& in, const Json& value, const Choices& choices,
                                     Json& out) {
  if (value.is_structured() || value.is_null())
    return wrong(in, "invalid_input_type", "must be a text", value);
  out = value.is_string() ? value : Json(value.dump());
  if (in.kind == InputKind::text) return {};
  const auto& word = out.get_ref<const std::string&>();
  if (word.size() <= longest_name && in.accepts(choices, in, word)) return {};
  return wrong(
      in, "value_not_in_list",
      str("'", shown(word), "' is not in the list", suggestion(shown(word), in.names(choices, in))),
      value);
}

// ---- the walk
class Walk {
 public:
  Walk(const Json& graph, const Choices& choices) : choices_(choices) {
    for (const auto& [id, json] : graph.items()) add(id, json);
    for (auto& [id, node] : nodes_)
      if (!node.of->shows.empty()) shows_.push_back(id);
    if (shows_.empty())
      throw GraphFault("prompt_no_outputs", "Prompt has no outputs",
                       "a SaveImage or a PreviewImage must end it");
  }

  WalkedGraph run() {
    for (const std::string& id : shows_) order_from(nodes_.at(id));
    throw_faults();
    for (Node* n : order_) make(*n);
    WalkedGraph out;
    for (const std::string& id : shows_) {
      Node& n = nodes_.at(id);
      const auto& image = std::get<ImageValue>(carried(n, "images"));
      if (!out.shows.empty() && image.node != out.image.node)
        n.faults.push_back({"not_supported",
                            "shows another picture than the other nodes that show"
                            " one: ebb makes the pictures of one VAEDecode",
                            "images", "images"});
      out.image = image;
      out.shows.emplace_back(id, n.of->shows);
    }
    throw_faults();
    out.ignored = std::move(ignored_);
    return out;
  }

 private:
  void add(const std::string& id, const Json& json) {
    const std::string at = str("Node ID '#", shown(id), "'");
    const auto type = json.is_object() ? json.find("class_type") : json.end();
    if (!json.is_object() || type == json.end() || !type->is_string())
      throw GraphFault("invalid_prompt",
                       "Cannot execute because a node is missing the class_type property.", at);
    const auto& name = type->get_ref<const std::string&>();
    const NodeClass* of = find_node_class(name);
    if (!of)
      throw GraphFault("invalid_prompt",
                       str("Cannot execute because node ", shown(name), " does not exist."), at);
    const auto inputs = json.find("inputs");
    Node& n = nodes_[id];
    n.id = id, n.of = of;
    n.inputs = inputs != json.end() && inputs->is_object() ? &*inputs : &no_inputs;
  }

  // What a node needs comes before it.
  void order_from(Node& last) {
    struct Step {
      Node* node;
      size_t next = 0;
    };
    std::vector<Step> path;
    const auto enter = [&](Node& n) {
      n.state = Node::State::begun;
      check_inputs(n);
      path.push_back({&n});
    };
    if (last.state == Node::State::unseen) enter(last);
    while (!path.empty()) {
      Step& s = path.back();
      if (s.next == s.node->links.size()) {
        s.node->state = Node::State::done;
        order_.push_back(s.node);
        path.pop_back();
        continue;
      }
      const auto& [input, from] = s.node->links[s.next++];
      if (from.first->state == Node::State::begun)
        s.node->faults.push_back({"dependency_cycle", "the node needs itself", input, input});
      if (from.first->state == Node::State::unseen) enter(*from.first);
    }
  }

  void check_inputs(Node& n) {
    for (const NodeInput& in : n.of->inputs) {
      const auto at = n.inputs->find(in.name);
      if (at == n.inputs->end() || at->is_null()) {
        if (in.required)
          n.faults.push_back(
              {"required_input_missing", "Required input is missing", in.name, in.name});
        else
          n.plain[in.name] = in.standard;
        continue;
      }
      const auto fault = at->is_array() ? check_link(n, in, *at) : check_plain(n, in, *at);
      if (fault) n.faults.push_back(*fault);
    }
    for (const auto& [name, value] : n.inputs->items())
      if (std::ranges::find(n.of->inputs, name, &NodeInput::name) == n.of->inputs.end())
        ignored_.push_back(str(n.id, '.', name));
    if (!n.faults.empty() && ++faulty_ >= most_faulty) throw_faults();
  }

  std::optional<InputFault> check_plain(Node& n, const NodeInput& in, const Json& value) {
    if (in.kind == InputKind::link)
      return wrong(in, "bad_linked_input", "must be a link: [\"node\", number of its output]",
                   value);
    Json& out = n.plain[in.name];
    if (in.kind == InputKind::text || in.kind == InputKind::choice)
      return check_text(in, value, choices_, out);
    return check_number(in, value, out);
  }

  std::optional<InputFault> check_link(Node& n, const NodeInput& in, const Json& value) {
    if (value.size() != 2 || !(value[0].is_string() || value[0].is_number_integer()) ||
        !value[1].is_number_integer())
      return wrong(in, "bad_linked_input", "a link must be [\"node\", number of its output]",
                   value);
    const std::string id = value[0].is_string() ? value[0].get<std::string>() : value[0].dump();
    const auto at = nodes_.find(id);
    if (at == nodes_.end())
      return wrong(in, "bad_linked_input", str("there is no node '", shown(id), "'"), value);
    const auto slot = value[1].get<int64_t>();
    const auto& outputs = at->second.of->outputs;
    if (slot < 0 || slot >= std::ssize(outputs))
      return wrong(in, "bad_linked_input",
                   str("node '", shown(id), "' has no output ", slot, " (", at->second.of->name,
                       " has ", outputs.size(), ")"),
                   value);
    const std::string& type = outputs[static_cast<size_t>(slot)];
    if (in.kind != InputKind::link || type != in.type)
      return wrong(in, "return_type_mismatch",
                   str("node '", shown(id), "' gives ", type, ", not ",
                       in.type.empty() ? "a name" : in.type),
                   value);
    n.links.push_back({in.name, {&at->second, static_cast<size_t>(slot)}});
    return {};
  }

  void make(Node& n) {
    NodeInputs in(n.id);
    for (const auto& [name, value] : n.plain) in.set(name, value);
    for (const auto& [name, from] : n.links) in.set(name, &from.first->values.at(from.second));
    try {
      n.values = n.of->make(in);
    } catch (const HttpFault& f) {
      n.faults.push_back({"not_supported", f.what(), f.field, f.field});
      throw_faults();
    }
  }

  static const Value& carried(const Node& n, std::string_view input) {
    const auto at = std::ranges::find(n.links, input, [](const auto& l) { return l.first; });
    return at->second.first->values.at(at->second.second);
  }

  void throw_faults() const {
    Json all = Json::object();
    for (const auto& [id, n] : nodes_)
      if (!n.faults.empty()) all[id] = node_error(n.of->name, n.faults, shows_);
    if (all.empty()) return;
    const auto& [id, n] = *std::ranges::find_if(
        nodes_, [](const auto& entry) { return !entry.second.faults.empty(); });
    throw GraphFault(
        "prompt_outputs_failed_validation", "Prompt outputs failed validation",
        str(n.of->name, " ", shown(id), ": ", n.faults[0].input, ": ", n.faults[0].message),
        std::move(all));
  }

  const Choices& choices_;
  std::map<std::string, Node> nodes_;
  std::vector<std::string> shows_, ignored_;
  std::vector<Node*> order_;
  size_t faulty_ = 0;
};

}  // namespace

GraphFault::GraphFault(const std::string& type, const std::string& message,
                       const std::string& details, Json node_errors)
    : HttpFault(400, type, message),
      body{{"error", error_json(type, message, details)}, {"node_errors", std::move(node_errors)}} {
}

WalkedGraph walk(const Json& graph, const Choices& choices) { return Walk(graph, choices).run(); }

GraphFault fault_of_node(const Json& graph, const std::string& node, const InputFault& fault) {
  const std::string name = graph.at(node).at("class_type").get<std::string>();
  return {"prompt_outputs_failed_validation",
          "Prompt outputs failed validation",
          str(name, " ", shown(node), ": ", fault.message),
          {{node, node_error(name, {fault}, {})}}};
}

}  // namespace ebb::server::comfy
