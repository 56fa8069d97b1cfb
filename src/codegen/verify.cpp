#include "base/error.h"
#include "codegen/ir.h"

namespace ebb::codegen {
namespace {

char letter(Kind kind) { return "puilf"[static_cast<size_t>(kind)]; }

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel)
      : k_(kernel),
        regions_(kernel),
        uniform_(uniform_values(kernel)),
        visible_(kernel.values.size()) {
    for (size_t v = 0; v < visible_.size(); ++v)
      visible_[v] = k_.values[v].of != Value::Class::defined;
  }

  void run() {
    for (at_ = 0; at_ < k_.code.size(); ++at_) {
      const Instruction& i = k_.code[at_];
      check_operands(i);
      check_types(i);
      if (i.op == Op::barrier || i.op == Op::subgroup_barrier || i.op == Op::shuffle_xor ||
          i.op == Op::shuffle_down || i.op == Op::cluster_arrive || i.op == Op::cluster_wait)
        rule(divergent_ == 0, "only some threads are here");
      if (i.op == Op::lane || i.op == Op::subgroup_index)
        rule(0 < i.number && i.number <= k_.subgroup && (i.number & (i.number - 1)) == 0,
             "a part of a subgroup has a power of two of its lanes");
      if (i.op == Op::break_unless) check_break();
      enter_or_leave(i);
      for (int32_t r = 0; r < i.results; ++r) define(i.result + r);
    }
  }

 private:
  struct Region {
    std::vector<int32_t> defined;
    bool divergent = false;
  };

  void rule(bool holds, std::string_view what) const {
    require(holds, "codegen: ", what, " (instruction ", at_, ", ", info_of(k_.code[at_].op).name,
            ")  ", k_.name);
  }

  void define(int32_t value) {
    visible_[static_cast<size_t>(value)] = true;
    open_.back().defined.push_back(value);
  }
  void close() {
    for (const int32_t v : open_.back().defined) visible_[static_cast<size_t>(v)] = false;
    divergent_ -= open_.back().divergent ? 1 : 0;
    open_.pop_back();
  }
  void open(bool divergent) {
    open_.push_back({{}, divergent});
    divergent_ += divergent ? 1 : 0;
  }

  void enter_or_leave(const Instruction& i) {
    if (i.op == Op::when) open(!uniform(k_.operand(i, 0)));
    if (i.op == Op::otherwise) {
      const bool divergent = open_.back().divergent;
      close();
      open(divergent);
    }
    if (i.op == Op::loop) open(!uniform(condition_of_loop()));
    if (i.op == Op::end_when || i.op == Op::end_loop) close();
  }

  bool uniform(int32_t value) const { return uniform_[static_cast<size_t>(value)]; }
  int32_t condition_of_loop() const {
    const auto end = static_cast<size_t>(regions_.end[at_]);
    int32_t condition = -1;
    for (size_t k = at_ + 1; k < end; ++k)
      if (k_.code[k].op == Op::break_unless && regions_.loop_of[k] == static_cast<int32_t>(at_)) {
        rule(condition < 0, "a loop has one break_unless");
        condition = k_.operand(k_.code[k], 0);
      }
    rule(condition >= 0, "a loop has a break_unless");
    return condition;
  }
  void check_break() const {
    const int32_t loop = regions_.loop_of[at_];
    rule(loop >= 0, "break_unless stands in a loop");
    size_t inner = 0;  // regions between the loop and here
    for (size_t k = static_cast<size_t>(loop) + 1; k < at_; ++k)
      if (k_.code[k].op == Op::when) inner += static_cast<size_t>(regions_.end[k]) > at_ ? 1 : 0;
    rule(inner == 0, "break_unless stands in its loop, not in a `when`");
  }

  void check_operands(const Instruction& i) const {
    for (int k = 0; k < i.operands; ++k) {
      const int32_t id = k_.operand(i, k);
      rule(id >= 0, "an operand is missing");
      rule(visible_[static_cast<size_t>(id)], "a value is used where it is not defined");
      const bool variable = k_.value(id).of == Value::Class::variable;
      const bool named = k == 0 && (i.op == Op::read || i.op == Op::write);
      rule(variable == named, "variables are read and written, values are not");
    }
  }

  void check_types(const Instruction& i) const {
    const std::string_view s = info_of(i.op).signature;
    char same = 0;
    const auto matches = [&](char want, Kind kind) {
      if (want == '*' || want == 'n') return true;
      if (want != 'a') return want == letter(kind);
      if (same == 0) same = letter(kind);
      return same == letter(kind);
    };
    rule(s[0] == '*' || i.results == (s[0] == '_' ? 0 : 1), "the number of results is wrong");
    for (int r = 0; r < i.results; ++r)
      rule(matches(s[0], k_.value(i.result + r).kind), "the result has another kind");
    size_t want = 1;
    for (int k = 0; k < i.operands; ++k) {
      rule(want < s.size(), "there are too many operands");
      rule(matches(s[want], k_.value(k_.operand(i, k)).kind), "an operand has another kind");
      if (s[want] != '*') ++want;
    }
    rule(want == s.size() || s[want] == '*', "an operand is missing");
  }

  const Kernel& k_;
  Regions regions_;
  std::vector<bool> uniform_, visible_;
  std::vector<Region> open_ = {{}};
  size_t at_ = 0;
  int divergent_ = 0;  // open regions that only some threads enter
};

}  // namespace

void verify(const Kernel& kernel) { Verifier(kernel).run(); }

}  // namespace ebb::codegen
