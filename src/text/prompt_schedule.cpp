#include "text/prompt_schedule.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/python_text.h"

namespace ebb::text {
namespace {

constexpr size_t text_limit = size_t{1} << 26;  // characters in all texts together

// A piece of the source, or a node.
struct Item {
  size_t begin = 0, end = 0;
  int64_t node = -1;
};
using Items = std::vector<Item>;

struct Node {
  enum Kind { emphasis, edit, alternate } kind = emphasis;
  std::vector<Items> options;  // emphasis: one with its brackets; edit: before, after
  int64_t when = 0;            // edit: the last step of `before`
};

// A bracket that is still open: what stands between its separators.
struct Open {
  size_t at;
  std::vector<Items> segments = {{}};
  std::vector<size_t> separators = {};  // where they are
};

class Schedule {
 public:
  Schedule(std::u32string_view text, const Steps& steps) : text_(text), steps_(steps) {
    // A prompt that is no sentence of the language changes in no step.
    if (!parse()) {
      top_ = {{0, text.size()}};
      ends_ = {};
      every_step_ = false;
    }
    ends_.insert(steps.count);
    const size_t count = every_step_ ? static_cast<size_t>(steps.count) : ends_.size();
    require(text.size() <= text_limit / count, "prompt: editing must make at most ", text_limit,
            " characters of all steps together (", text.size(), " characters, ", count, " texts)");
    for (int64_t step = 1; every_step_ && step < steps.count; ++step) ends_.insert(step);
  }

  std::vector<ScheduledText> texts() const {
    std::vector<ScheduledText> out;
    for (const int64_t end : ends_) {
      std::string text = to_utf8(at_step(end));
      if (!out.empty() && out.back().text == text) {
        out.back().end_step = end;
      } else {
        out.push_back({end, std::move(text)});
      }
    }
    return out;
  }

 private:
  // False if there is no reading: a | outside of brackets, or a \ before nothing or a new line.
  bool parse() {
    for (size_t at = 0; at < text_.size();) {
      const char32_t c = text_[at];
      const size_t begin = at++;
      if (c == '(' || c == '[') {
        open_.push_back({begin});
      } else if (c == ')' || c == ']') {
        if (!close(begin)) return false;
      } else if (c == ':' || c == '|') {
        if (open_.empty() && c == '|') return false;
        if (open_.empty()) {
          add({begin, at});
        } else {
          open_.back().separators.push_back(begin);
          open_.back().segments.emplace_back();
        }
      } else {
        if (!plain(begin, at)) return false;
        add({begin, at});
      }
    }
    return abandon();
  }

  // Moves `at` behind the text that starts at `begin`.
  bool plain(size_t begin, size_t& at) const {
    for (at = begin; at < text_.size(); ++at) {
      if (std::u32string_view(U"[]():|").find(text_[at]) != std::u32string_view::npos) break;
      if (text_[at] == '\\' && (++at == text_.size() || text_[at] == '\n')) return false;
    }
    return true;
  }

  Items& current() { return open_.empty() ? top_ : open_.back().segments.back(); }
  void add(Item item) { current().push_back(item); }

  // The brackets that are open are text, and what encloses a lone bracket is too. False if that
  // leaves a | outside of brackets.
  bool abandon() {
    for (Open& o : open_) {
      top_.push_back({o.at, o.at + 1});
      for (size_t i = 0; i < o.segments.size(); ++i) {
        if (i > 0) {
          const size_t at = o.separators[i - 1];
          if (text_[at] == '|') return false;
          top_.push_back({at, at + 1});
        }
        top_.insert(top_.end(), o.segments[i].begin(), o.segments[i].end());
      }
    }
    open_.clear();
    return true;
  }

  bool close(size_t at) {
    const bool matches = !open_.empty() && (text_[at] == ')') == (text_[open_.back().at] == '(');
    std::optional<Node> node = matches ? closed(open_.back(), at) : std::nullopt;
    if (!node) {
      if (!abandon()) return false;
      add({at, at + 1});
      return true;
    }
    open_.pop_back();
    add({0, 0, static_cast<int64_t>(nodes_.size())});
    nodes_.push_back(std::move(*node));
    return true;
  }

  // The bracket as a node, if it is one of the language's.
  std::optional<Node> closed(Open& o, size_t at) {
    const bool square = text_[at] == ']';
    const size_t n = o.separators.size();
    const auto bars = static_cast<size_t>(std::count_if(o.separators.begin(), o.separators.end(),
                                                        [&](size_t s) { return text_[s] == '|'; }));
    if (square && n > 0 && bars == n) {
      every_step_ = true;
      return Node{Node::alternate, std::move(o.segments)};
    }
    if (bars > 0 || n > (square ? 2u : 1u)) return std::nullopt;
    if (n == 0 || !square) return emphasis(o, at);
    const std::optional<int64_t> when = step_of(o.segments.back());
    if (!when) return std::nullopt;
    if (*when >= 1) ends_.insert(*when);
    Items before = n == 2 ? std::move(o.segments[0]) : Items();
    return Node{Node::edit, {std::move(before), std::move(o.segments[n - 1])}, *when};
  }

  static Node emphasis(Open& o, size_t at) {
    Items all = {{o.at, o.at + 1}};
    for (size_t i = 0; i < o.segments.size(); ++i) {
      if (i > 0) all.push_back({o.separators[i - 1], o.separators[i - 1] + 1});
      all.insert(all.end(), o.segments[i].begin(), o.segments[i].end());
    }
    all.push_back({at, at + 1});
    return {Node::emphasis, {std::move(all)}};
  }

  // The step that a number stands for; none if it is none.
  std::optional<int64_t> step_of(const Items& items) const {
    if (items.size() != 1 || items[0].node >= 0) return std::nullopt;
    const std::u32string_view number =
        stripped(text_.substr(items[0].begin, items[0].end - items[0].begin));
    const bool digits = number.find_first_not_of(U"+-0123456789.eE") == std::u32string_view::npos;
    const std::optional<double> value = digits ? python_float(number) : std::nullopt;
    if (!value) return std::nullopt;
    const double count = static_cast<double>(steps_.count);
    const bool second = steps_.before > 0;
    const double step = number.find('.') != std::u32string_view::npos
                            ? (*value - (second ? 1.0 : 0.0)) * count
                            : *value - static_cast<double>(steps_.before);
    return static_cast<int64_t>(std::clamp(step, -1.0, count));
  }

  std::u32string at_step(int64_t step) const {
    std::u32string out;
    std::vector<std::pair<const Items*, size_t>> rest = {{&top_, 0}};
    while (!rest.empty()) {
      auto& [items, next] = rest.back();
      if (next == items->size()) {
        rest.pop_back();
        continue;
      }
      const Item& item = (*items)[next++];
      if (item.node < 0) {
        out += text_.substr(item.begin, item.end - item.begin);
      } else {
        rest.push_back({&chosen(nodes_[static_cast<size_t>(item.node)], step), 0});
      }
    }
    return out;
  }

  static const Items& chosen(const Node& node, int64_t step) {
    if (node.kind == Node::emphasis) return node.options[0];
    if (node.kind == Node::edit) return node.options[step <= node.when ? 0 : 1];
    return node.options[static_cast<size_t>(step - 1) % node.options.size()];
  }

  std::u32string_view text_;
  Steps steps_;
  std::vector<Node> nodes_;
  std::vector<Open> open_;
  Items top_;
  std::set<int64_t> ends_;  // steps after which the text may change
  bool every_step_ = false;
};

}  // namespace

std::vector<ScheduledText> schedule_prompt(std::string_view text, const Steps& steps) {
  require(steps.count >= 1 && steps.before >= 0, "prompt: must have at least one step (",
          steps.count, ", ", steps.before, " before)");
  const std::u32string characters = decode_utf8(text);
  return Schedule(characters, steps).texts();
}

}  // namespace ebb::text
