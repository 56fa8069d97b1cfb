#include "io/pickle.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace ebb::io {
namespace {

using Kind = PickleNode::Kind;
using Nodes = std::vector<uint32_t>;

constexpr size_t node_limit = 1'000'000;
constexpr uint64_t memo_limit = uint64_t{1} << 24;
constexpr uint8_t newest_protocol = 5;

class Machine {
 public:
  Machine(std::span<const uint8_t> bytes, const std::string& file) : bytes_(bytes), file_(file) {
    out_.nodes.push_back({});  // what PUSH of None, True and False share
    out_.nodes.push_back({.kind = Kind::boolean, .integer = 0});
    out_.nodes.push_back({.kind = Kind::boolean, .integer = 1});
  }

  Pickle run() {
    while (!stopped_) {
      at_ = place_;
      step(byte());
    }
    check(marks_.empty() && stack_.size() == 1, "must leave one object (", stack_.size(), ")");
    out_.root = stack_.back();
    out_.bytes = place_;
    return std::move(out_);
  }

 private:
  template <class... Parts>
  void check(bool ok, const Parts&... parts) const {
    require(ok, "pickle: ", parts..., " at byte ", at_, "  ", file_);
  }

  // ---- bytes ----

  uint8_t byte() {
    check(place_ < bytes_.size(), "ends without STOP");
    return bytes_[place_++];
  }

  std::string_view take(uint64_t count) {
    check(count <= bytes_.size() - place_, "must not end within an argument (", count, " bytes of ",
          bytes_.size() - place_, ")");
    const auto* from = reinterpret_cast<const char*>(bytes_.data()) + place_;
    place_ += static_cast<size_t>(count);
    return {from, static_cast<size_t>(count)};
  }

  uint64_t unsigned_integer(int size) {
    uint64_t out = 0;
    std::memcpy(&out, take(static_cast<uint64_t>(size)).data(), static_cast<size_t>(size));
    return out;
  }

  std::string_view line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + place_,
                                bytes_.size() - place_);
    const size_t end = rest.find('\n');
    check(end != std::string_view::npos, "must not end within a line");
    place_ += end + 1;
    return rest.substr(0, end);
  }

  // ---- the stack ----

  uint32_t made(PickleNode node) {
    check(out_.nodes.size() < node_limit, "must have at most ", node_limit, " objects");
    out_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(out_.nodes.size() - 1);
  }
  void push(PickleNode node) { stack_.push_back(made(std::move(node))); }
  // Python writes halves of surrogate pairs, too; and Python 2's strings are text where they can
  // be.
  void push_text(std::string_view text) {
    push({.kind = valid_utf8(text) ? Kind::text : Kind::bytes, .text = std::string(text)});
  }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  uint32_t top() const {
    check(stack_.size() > floor(), "takes an object that is not there");
    return stack_.back();
  }
  uint32_t pop() {
    const uint32_t node = top();
    stack_.pop_back();
    return node;
  }
  Nodes pop_marked() {
    check(!marks_.empty(), "takes objects behind a mark that is not there");
    Nodes out(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }

  void push_tuple(size_t count) {
    Nodes items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    push({.kind = Kind::tuple, .items = std::move(items)});
  }

  void push_global(std::string_view module, std::string_view name) {
    check(valid_utf8(module) && valid_utf8(name), "names must be valid UTF-8");
    push({.kind = Kind::global, .text = str(module, ' ', name)});
  }

  void push_named_global() {
    const uint32_t name = pop(), module = pop();
    check(out_[name].kind == Kind::text && out_[module].kind == Kind::text,
          "a callable must be named by text");
    push_global(out_[module].text, out_[name].text);
  }

  // The arguments are on top; with keywords behind them they are a tuple of both.
  void push_call(bool keywords) {
    if (keywords) push_tuple(2);
    const uint32_t arguments = pop(), callable = pop();
    check(out_[arguments].kind == Kind::tuple, "arguments of a call must be a tuple");
    push({.kind = Kind::call, .items = {callable, arguments}});
  }

  void build() {
    const uint32_t state = pop();
    out_.nodes[top()].state.push_back(state);
  }

  // Lists and sets; or items of an object that stands for one, such as an OrderedDict.
  void append(const Nodes& items, bool pairs) {
    check(!pairs || items.size() % 2 == 0, "keys must have values (", items.size(), ")");
    PickleNode& node = out_.nodes[top()];
    const bool fits =
        node.kind == Kind::call ||
        (pairs ? node.kind == Kind::dict : node.kind == Kind::list || node.kind == Kind::set);
    check(fits, "adds items to what holds none");
    node.items.insert(node.items.end(), items.begin(), items.end());
  }

  // ---- the memo ----

  void put(uint64_t index) {
    check(index < memo_limit, "memo index must be below ", memo_limit, " (", index, ")");
    memo_[index] = top();
  }
  void get(uint64_t index) {
    const auto it = memo_.find(index);
    check(it != memo_.end(), "memo has no object (", index, ")");
    stack_.push_back(it->second);
  }

  // ---- numbers ----

  template <class T>
  T number_in(std::string_view text) const {
    T out{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    check(error == std::errc() && end == text.data() + text.size(), "must be a number");
    return out;
  }

  void push_integer(int64_t value) { push({.kind = Kind::integer, .integer = value}); }

  void push_line_integer() {
    std::string_view text = line();
    if (text == "00" || text == "01") return stack_.push_back(text == "01" ? 2 : 1);
    if (text.ends_with('L')) text.remove_suffix(1);
    push_integer(number_in<int64_t>(text));
  }

  // Two's complement.
  void push_long(std::string_view bytes) {
    if (bytes.size() > sizeof(int64_t))
      return push({.kind = Kind::large, .text = std::string(bytes)});
    uint64_t out = !bytes.empty() && (bytes.back() & 0x80) ? ~uint64_t{0} : 0;
    if (!bytes.empty()) std::memcpy(&out, bytes.data(), bytes.size());
    push_integer(std::bit_cast<int64_t>(out));
  }

  void push_float() {
    uint64_t bits = 0;
    for (const char c : take(sizeof bits)) bits = bits << 8 | static_cast<uint8_t>(c);
    push({.kind = Kind::number, .number = std::bit_cast<double>(bits)});
  }

  // 'text' with Python's escapes, which are left as they are.
  void push_quoted() {
    const std::string_view text = line();
    check(text.size() >= 2 && text.front() == text.back() &&
              (text.front() == '\'' || text.front() == '"'),
          "text must stand in quotes");
    push_text(text.substr(1, text.size() - 2));
  }

  // ---- opcodes ----

  void step(uint8_t op) {
    if (!constant(op) && !container(op) && !object(op))
      check(false, "opcode ", static_cast<int>(op), " is not read");
  }

  bool constant(uint8_t op) {
    switch (op) {
      case 'N': stack_.push_back(0); break;
      case 0x89: stack_.push_back(1); break;
      case 0x88: stack_.push_back(2); break;
      case 'I':
      case 'L': push_line_integer(); break;
      case 'J': push_integer(static_cast<int32_t>(unsigned_integer(4))); break;
      case 'K': push_integer(static_cast<int64_t>(unsigned_integer(1))); break;
      case 'M': push_integer(static_cast<int64_t>(unsigned_integer(2))); break;
      case 0x8a: push_long(take(unsigned_integer(1))); break;
      case 0x8b: push_long(take(unsigned_integer(4))); break;
      case 'F': push({.kind = Kind::number, .number = number_in<double>(line())}); break;
      case 'G': push_float(); break;
      case 'S': push_quoted(); break;
      case 'V': push_text(line()); break;
      case 'X': push_text(take(unsigned_integer(4))); break;
      case 0x8c: push_text(take(unsigned_integer(1))); break;
      case 0x8d: push_text(take(unsigned_integer(8))); break;
      case 'T':
      case 'B': push_text(take(unsigned_integer(4))); break;
      case 'U':
      case 'C': push_text(take(unsigned_integer(1))); break;
      case 0x8e:
      case 0x96: push_text(take(unsigned_integer(8))); break;
      default: return false;
    }
    return true;
  }

  bool container(uint8_t op) {
    switch (op) {
      case ')': push({.kind = Kind::tuple}); break;
      case 't': push({.kind = Kind::tuple, .items = pop_marked()}); break;
      case 0x85: push_tuple(1); break;
      case 0x86: push_tuple(2); break;
      case 0x87: push_tuple(3); break;
      case ']': push({.kind = Kind::list}); break;
      case 'l': push({.kind = Kind::list, .items = pop_marked()}); break;
      case 0x8f: push({.kind = Kind::set}); break;
      case 0x91: push({.kind = Kind::set, .items = pop_marked()}); break;
      case '}': push({.kind = Kind::dict}); break;
      case 'd': {
        Nodes items = pop_marked();
        push({.kind = Kind::dict});
        append(items, true);
        break;
      }
      case 'a': append({pop()}, false); break;
      case 'e':
      case 0x90: append(pop_marked(), false); break;
      case 's': {
        const uint32_t value = pop(), key = pop();
        append({key, value}, true);
        break;
      }
      case 'u': append(pop_marked(), true); break;
      default: return false;
    }
    return true;
  }

  bool object(uint8_t op) {
    switch (op) {
      case 0x80: {
        const uint8_t protocol = byte();
        check(protocol <= newest_protocol, "protocol must be at most 5 (",
              static_cast<int>(protocol), ")");
        break;
      }
      case 0x95: take(8); break;  // a frame's length: a hint for reading ahead
      case '.': stopped_ = true; break;
      case '(': marks_.push_back(stack_.size()); break;
      case '0': marks_.empty() || stack_.size() > floor() ? void(pop()) : marks_.pop_back(); break;
      case '1': pop_marked(); break;
      case '2': stack_.push_back(top()); break;
      case 'c': {
        const std::string_view module = line();
        push_global(module, line());
        break;
      }
      case 0x93: push_named_global(); break;
      case 'R':
      case 0x81: push_call(false); break;
      case 0x92: push_call(true); break;
      case 'b': build(); break;
      case 'Q': push({.kind = Kind::persistent, .items = {pop()}}); break;
      case 'P': {
        push_text(line());
        push({.kind = Kind::persistent, .items = {pop()}});
        break;
      }
      case 'p': put(number_in<uint64_t>(line())); break;
      case 'q': put(unsigned_integer(1)); break;
      case 'r': put(unsigned_integer(4)); break;
      case 0x94: put(memo_.size()); break;
      case 'g': get(number_in<uint64_t>(line())); break;
      case 'h': get(unsigned_integer(1)); break;
      case 'j': get(unsigned_integer(4)); break;
      default: return false;
    }
    return true;
  }

  std::span<const uint8_t> bytes_;
  const std::string& file_;
  size_t place_ = 0, at_ = 0;
  bool stopped_ = false;
  Pickle out_;
  Nodes stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, uint32_t> memo_;
};

}  // namespace

Pickle parse_pickle(std::span<const uint8_t> bytes, const std::string& file) {
  return Machine(bytes, file).run();
}

}  // namespace ebb::io
