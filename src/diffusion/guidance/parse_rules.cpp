// Parsing guidance rules, and checks of their order.
#include <algorithm>

#include "base/error.h"
#include "base/names.h"
#include "base/text.h"
#include "diffusion/guidance/guide.h"

namespace ebb {
namespace {

using Rules = std::vector<const GuidanceRule*>;

template <class Is>
const GuidanceRule* first_of(const Rules& rules, size_t from, size_t to, const Is& is) {
  for (size_t i = from; i < to; ++i)
    if (is(*rules[i])) return rules[i];
  return nullptr;
}

bool combines(const GuidanceRule& r) { return r.kind == RuleKind::combines; }
bool guides(const GuidanceRule& r) { return combines(r) || r.kind == RuleKind::adds; }

// Of a rule that says something to those after it: whether one of them listens.
bool is_heard(const GuidanceRule& speaker, const GuidanceRule& r) {
  switch (speaker.kind) {
    case RuleKind::directs: return combines(r) || r.can_be_off;
    case RuleKind::scales: return combines(r) && r.has_scale;
    default: return combines(r);
  }
}

std::string option_names(const GuidanceRule& r) {
  std::string out;
  for (const Option& o : r.options()) out += (out.empty() ? "" : ", ") + o.name;
  return out;
}

// Throws Error if nothing comes of the rule at `i`.
void check_place(const Rules& rules, size_t i) {
  const GuidanceRule& rule = *rules[i];
  const std::string& name = rule.name;
  switch (rule.kind) {
    case RuleKind::directs:
    case RuleKind::scales:
    case RuleKind::prepares: {
      const bool heard = first_of(rules, i + 1, rules.size(),
                                  [&](const GuidanceRule& r) { return is_heard(rule, r); });
      require(heard, "guidance: '", name, "' speaks to a rule after it, and none there listens: '",
              name, ";cfg' would");
      return;
    }
    default: break;
  }
  const GuidanceRule* anew = first_of(rules, i + 1, rules.size(), combines);
  require(!anew || rule.kind != RuleKind::combines, "guidance: '", name, "' and '",
          anew ? anew->name : "", "' each make the result of the predictions: give one of them");
  require(!anew, "guidance: '", name, "' does nothing before '", anew ? anew->name : "",
          "', which makes the result anew: '", anew ? anew->name : "", ';', name, "' works");
  require(rule.kind != RuleKind::mends || first_of(rules, 0, i, guides), "guidance: '", name,
          "' mends what a rule before it made, and none does: 'cfg;", name, "' works");
}

// Throws Error if a rule whose scale is set by the one at `i` has options for one.
void check_scales_after(const Rules& rules, const std::vector<RuleCall>& calls, size_t i) {
  for (size_t k = i + 1; k < rules.size(); ++k)
    for (const auto& [name, text] : calls[k].options)
      require(!is_heard(*rules[i], *rules[k]) ||
                  (name != "scale" && name != "use_original_formulation"),
              "guidance: '", rules[i]->name, "' tells '", rules[k]->name,
              "' its scale: leave out one of them (", name, '=', text, ")");
}

}  // namespace

std::vector<RuleCall> parse_rules(std::string_view text) {
  std::vector<RuleCall> out;
  text = trimmed(text);
  for (const std::string_view part : items_in(text, ";")) {
    const size_t colon = std::min(part.find(':'), part.size());
    const std::string_view name = trimmed(part.substr(0, colon));
    require(!name.empty(), "guidance: a rule has no name  got '", text, "'");
    const std::string_view options = trimmed(part.substr(std::min(colon + 1, part.size())));
    require(colon == part.size() || !options.empty(), "guidance: no option follows the colon of '",
            name, ":'");
    out.push_back({std::string(name), parse_options(options, name)});
    find_guidance_rule(name).start(out.back().options);
  }
  check_order(out);
  return out;
}

bool has_guidance(const std::vector<RuleCall>& calls) {
  return std::any_of(calls.begin(), calls.end(),
                     [](const RuleCall& c) { return guides(find_guidance_rule(c.rule)); });
}

void check_branches(const std::vector<RuleCall>& calls, std::span<const Branch> given) {
  for (const RuleCall& c : calls) {
    const GuidanceRule& r = find_guidance_rule(c.rule);
    for (const Branch b : r.extra)
      require(std::ranges::find(given, b) != given.end(), "guidance: '", r.name,
              "' needs a prediction that this network does not provide: ", name_of(b));
  }
}

void check_order(const std::vector<RuleCall>& calls) {
  Rules rules;
  for (const RuleCall& c : calls) rules.push_back(&find_guidance_rule(c.rule));
  for (size_t i = 0; i < rules.size(); ++i) {
    const GuidanceRule& r = *rules[i];
    check_place(rules, i);
    if (r.kind == RuleKind::scales) check_scales_after(rules, calls, i);
    require(r.kind != RuleKind::directs || !calls[i].options.empty(), "guidance: '", r.name,
            "' without options holds back nothing: give it one of ", option_names(r));
  }
}

}  // namespace ebb
