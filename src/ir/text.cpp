#include "ir/text.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/fields.h"

namespace ebb {
namespace {

struct ParamFields {
  ParamInfo& info;
  std::vector<int64_t> file_shape = info.file_shape.sizes();
  void fields(auto&& f) {
    f("init", info.init);
    f("scale", info.scale);
    f("file_shape", file_shape);
    f("channels_last", info.channels_last);
    f("qkv_interleave", info.qkv_interleave);
    f("decay", info.decay);
  }
};

std::string_view kind_name(Source::Kind k) {
  return k == Source::Kind::input ? "input" : k == Source::Kind::param ? "param" : "state";
}

std::string list(const std::vector<int32_t>& ids) {
  std::string s;
  for (const int32_t v : ids) s += str(s.empty() ? "%" : ", %", v);
  return s;
}

void print_source(std::ostream& out, const Graph& g, const Source& s) {
  out << '%' << s.value << " = " << kind_name(s.kind) << ' ' << s.name << " : " << g.type(s.value);
  if (s.kind != Source::Kind::input) {
    ParamInfo info = s.info;
    ParamFields f{info};
    out << ' ' << fields_text(fields_of(f));
  }
  out << '\n';
}

void print_node(std::ostream& out, const Graph& g, const Node& n) {
  out << list(n.out) << " = " << n.op->name << '(' << list(n.in) << ')';
  if (const std::string a = n.attrs.text(); !a.empty()) out << ' ' << a;
  out << " : ";
  for (size_t i = 0; i < n.out.size(); ++i) out << (i ? ", " : "") << g.type(n.out[i]);
  if (!n.at.empty()) out << "  @ " << n.at;
  out << '\n';
}

}  // namespace

std::string to_text(const Graph& g) {
  std::ostringstream out;
  std::vector<bool> printed(g.sources().size());
  // Sources are printed at their value number, so that reading restores the numbers.
  const auto sources_before = [&](int32_t value) {
    for (size_t i = 0; i < g.sources().size(); ++i) {
      if (printed[i] || g.sources()[i].value >= value) continue;
      print_source(out, g, g.sources()[i]);
      printed[i] = true;
    }
  };
  for (const Node& n : g.nodes()) {
    sources_before(n.out.empty() ? g.values() : n.out[0]);
    print_node(out, g, n);
  }
  sources_before(g.values());
  for (const NamedValue& o : g.outputs()) out << "output " << o.name << " = %" << o.value << '\n';
  for (const NamedValue& u : g.updates()) out << "update " << u.name << " = %" << u.value << '\n';
  return out.str();
}

// ---- reading -------------------------------------------------------------------------------

namespace {

class Reader {
 public:
  Reader(std::string_view text, const std::function<const OpDef&(std::string_view)>& op)
      : text_(text), op_(op) {}

  Graph read() {
    int64_t number = 0;
    while (!text_.empty()) {
      const size_t end = std::min(text_.find('\n'), text_.size());
      std::string_view line = text_.substr(0, end);
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++number;
      if (line.empty()) continue;
      try {
        read_line(line);
      } catch (const Error& e) {
        fail("graph text: line ", number, ": ", e.what());
      }
    }
    verify(graph_, "reading text");
    return std::move(graph_);
  }

 private:
  static std::string_view take(std::string_view& s, std::string_view until) {
    const size_t at = s.find(until);
    require(at != std::string_view::npos, "expected '", until, "' in '", s, "'");
    const std::string_view head = s.substr(0, at);
    s.remove_prefix(at + until.size());
    return head;
  }

  static std::vector<std::string_view> names(std::string_view s) {
    std::vector<std::string_view> out;
    while (!s.empty()) {
      const size_t at = std::min(s.find(", "), s.size());
      out.push_back(s.substr(0, at));
      s.remove_prefix(std::min(at + 2, s.size()));
    }
    return out;
  }

  Value value(std::string_view name) const {
    const auto it = values_.find(name);
    require(it != values_.end(), "no value ", name);
    return it->second;
  }

  void bind(std::string_view name, Value v) {
    require(values_.emplace(std::string(name), v).second, "value ", name, " stands twice");
  }

  void read_line(std::string_view line) {
    if (line.starts_with("output ") || line.starts_with("update ")) {
      const bool output = line.starts_with("output ");
      line.remove_prefix(7);
      const std::string_view name = take(line, " = ");
      output ? graph_.output(name, value(line)) : graph_.update(name, value(line));
      return;
    }
    const std::string_view results = take(line, " = ");
    for (const auto kind : {Source::Kind::input, Source::Kind::param, Source::Kind::state})
      if (line.starts_with(str(kind_name(kind), ' '))) return read_source(results, kind, line);
    read_node(results, line);
  }

  void read_source(std::string_view result, Source::Kind kind, std::string_view rest) {
    take(rest, " ");
    const std::string_view name = take(rest, " : ");
    const size_t brace = std::min(rest.find(" {"), rest.size());
    ParamInfo info;
    ParamFields f{info};
    if (brace < rest.size()) parse_fields(fields_of(f), rest.substr(brace + 1));
    info.file_shape = Shape(f.file_shape);
    bind(result, graph_.source(kind, name, parse_type(rest.substr(0, brace)), info));
  }

  void read_node(std::string_view results, std::string_view rest) {
    const OpDef& op = op_(take(rest, "("));
    std::vector<Value> in;
    for (const auto n : names(take(rest, ")"))) in.push_back(value(n));
    std::string_view attrs = take(rest, " : ");
    if (attrs.starts_with(' ')) attrs.remove_prefix(1);
    const size_t path = rest.find("  @ ");
    const AtScope scope(graph_, path == std::string_view::npos
                                    ? std::string()
                                    : std::string(rest.substr(path + 4)));
    const std::vector<Value> out = graph_.add(op, op.attrs().parsed(attrs), in);
    const auto bound = names(results);
    require(bound.size() == out.size(), op.name, ": has ", out.size(), " results (got ",
            bound.size(), ")");
    std::string types;
    for (const Value& v : out) types += str(types.empty() ? "" : ", ", v.type());
    require(types == rest.substr(0, std::min(path, rest.size())), op.name, ": computes ", types,
            " (the text says ", rest.substr(0, std::min(path, rest.size())), ")");
    for (size_t i = 0; i < out.size(); ++i) bind(bound[i], out[i]);
  }

  std::string_view text_;
  const std::function<const OpDef&(std::string_view)>& op_;
  Graph graph_;
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace

Graph parse_graph(std::string_view text, const std::function<const OpDef&(std::string_view)>& op) {
  return Reader(text, op).read();
}

}  // namespace ebb
