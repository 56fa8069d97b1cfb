#include "ir/expr.h"

#include <bit>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "base/names.h"
#include "ir/expr_inputs.h"

namespace ebb {
namespace {

constexpr ScalarOpInfo table[] = {
    {ScalarOp::input, "input", 0, 0},   {ScalarOp::constant, "constant", 0, 0},
    {ScalarOp::add, "add", 2, 1},       {ScalarOp::sub, "sub", 2, 1},
    {ScalarOp::mul, "mul", 2, 1},       {ScalarOp::div, "div", 2, 4},
    {ScalarOp::min, "min", 2, 1},       {ScalarOp::max, "max", 2, 1},
    {ScalarOp::less, "less", 2, 1},     {ScalarOp::pow, "pow", 2, 30},
    {ScalarOp::neg, "neg", 1, 1},       {ScalarOp::abs, "abs", 1, 1},
    {ScalarOp::sqrt, "sqrt", 1, 4},     {ScalarOp::rsqrt, "rsqrt", 1, 4},
    {ScalarOp::exp, "exp", 1, 10},      {ScalarOp::log, "log", 1, 10},
    {ScalarOp::sin, "sin", 1, 15},      {ScalarOp::cos, "cos", 1, 15},
    {ScalarOp::tanh, "tanh", 1, 15},    {ScalarOp::sigmoid, "sigmoid", 1, 15},
    {ScalarOp::erf, "erf", 1, 15},      {ScalarOp::floor, "floor", 1, 1},
    {ScalarOp::bf16, "bf16", 1, 1},     {ScalarOp::f16, "f16", 1, 1},
    {ScalarOp::select, "select", 3, 1},
};

}  // namespace

const ScalarOpInfo& info_of(ScalarOp op) {
  const ScalarOpInfo& i = table[static_cast<size_t>(op)];
  return i;
}

double evaluate(ScalarOp op, double a, double b, double c) {
  switch (op) {
    case ScalarOp::input:
    case ScalarOp::constant: return a;
    case ScalarOp::add: return a + b;
    case ScalarOp::sub: return a - b;
    case ScalarOp::mul: return a * b;
    case ScalarOp::div: return a / b;
    case ScalarOp::min: return a < b ? a : b;
    case ScalarOp::max: return a > b ? a : b;
    case ScalarOp::less: return a < b ? 1 : 0;
    case ScalarOp::pow: return std::pow(a, b);
    case ScalarOp::neg: return -a;
    case ScalarOp::abs: return std::fabs(a);
    case ScalarOp::sqrt: return std::sqrt(a);
    case ScalarOp::rsqrt: return 1 / std::sqrt(a);
    case ScalarOp::exp: return std::exp(a);
    case ScalarOp::log: return std::log(a);
    case ScalarOp::sin: return std::sin(a);
    case ScalarOp::cos: return std::cos(a);
    case ScalarOp::tanh: return std::tanh(a);
    case ScalarOp::sigmoid:
      return a >= 0 ? 1 / (1 + std::exp(-a)) : std::exp(a) / (1 + std::exp(a));
    case ScalarOp::erf: return std::erf(a);
    case ScalarOp::floor: return std::floor(a);
    case ScalarOp::bf16: return double{static_cast<float>(ebb::bf16(static_cast<float>(a)))};
    case ScalarOp::f16: return double{static_cast<float>(ebb::f16(static_cast<float>(a)))};
    case ScalarOp::select: return a != 0 ? b : c;
  }
  return NAN;
}

// ---- scalars -------------------------------------------------------------------------------

Scalar::Scalar(double constant)
    : node_(std::make_shared<Node>(Node{ScalarOp::constant, constant, {}})) {}

Scalar Scalar::input(int64_t index) {
  return Scalar(std::make_shared<Node>(Node{ScalarOp::input, static_cast<double>(index), {}}));
}

bool Scalar::is_constant() const { return node_->op == ScalarOp::constant; }
bool Scalar::is_constant(double v) const { return is_constant() && node_->value == v; }

Scalar Scalar::make(ScalarOp op, const Scalar& a) {
  if (a.is_constant()) return evaluate(op, a.node_->value, 0, 0);
  return Scalar(std::make_shared<Node>(Node{op, 0, {a}}));
}

Scalar Scalar::make(ScalarOp op, const Scalar& a, const Scalar& b) {
  if (a.is_constant() && b.is_constant()) return evaluate(op, a.node_->value, b.node_->value, 0);
  return Scalar(std::make_shared<Node>(Node{op, 0, {a, b}}));
}

Scalar Scalar::make(ScalarOp op, const Scalar& a, const Scalar& b, const Scalar& c) {
  if (a.is_constant() && op == ScalarOp::select) return a.node_->value != 0 ? b : c;
  return Scalar(std::make_shared<Node>(Node{op, 0, {a, b, c}}));
}

Scalar operator+(const Scalar& a, const Scalar& b) {
  if (a.is_constant(0)) return b;
  if (b.is_constant(0)) return a;
  return Scalar::make(ScalarOp::add, a, b);
}

Scalar operator-(const Scalar& a, const Scalar& b) {
  if (b.is_constant(0)) return a;
  if (a.is_constant(0)) return -b;
  return Scalar::make(ScalarOp::sub, a, b);
}

Scalar operator*(const Scalar& a, const Scalar& b) {
  if (a.is_constant(0) || b.is_constant(0)) return 0.0;
  if (a.is_constant(1)) return b;
  if (b.is_constant(1)) return a;
  if (a.is_constant(-1)) return -b;
  if (b.is_constant(-1)) return -a;
  return Scalar::make(ScalarOp::mul, a, b);
}

Scalar operator/(const Scalar& a, const Scalar& b) {
  if (a.is_constant(0)) return 0.0;
  if (b.is_constant()) return a * Scalar(1 / b.node().value);
  return Scalar::make(ScalarOp::div, a, b);
}

Scalar operator-(const Scalar& a) {
  if (a.node().op == ScalarOp::neg) return a.node().arguments[0];
  return Scalar::make(ScalarOp::neg, a);
}

Scalar min(const Scalar& a, const Scalar& b) { return Scalar::make(ScalarOp::min, a, b); }
Scalar max(const Scalar& a, const Scalar& b) { return Scalar::make(ScalarOp::max, a, b); }
Scalar less(const Scalar& a, const Scalar& b) { return Scalar::make(ScalarOp::less, a, b); }
Scalar pow(const Scalar& a, const Scalar& b) {
  if (b.is_constant(2)) return a * a;
  if (b.is_constant(1)) return a;
  return Scalar::make(ScalarOp::pow, a, b);
}
Scalar select(const Scalar& condition, const Scalar& a, const Scalar& b) {
  return Scalar::make(ScalarOp::select, condition, a, b);
}
Scalar abs(const Scalar& a) { return Scalar::make(ScalarOp::abs, a); }
Scalar sqrt(const Scalar& a) { return Scalar::make(ScalarOp::sqrt, a); }
Scalar rsqrt(const Scalar& a) { return Scalar::make(ScalarOp::rsqrt, a); }
Scalar exp(const Scalar& a) { return Scalar::make(ScalarOp::exp, a); }
Scalar log(const Scalar& a) { return Scalar::make(ScalarOp::log, a); }
Scalar sin(const Scalar& a) { return Scalar::make(ScalarOp::sin, a); }
Scalar cos(const Scalar& a) { return Scalar::make(ScalarOp::cos, a); }
Scalar tanh(const Scalar& a) { return Scalar::make(ScalarOp::tanh, a); }
Scalar sigmoid(const Scalar& a) { return Scalar::make(ScalarOp::sigmoid, a); }
Scalar erf(const Scalar& a) { return Scalar::make(ScalarOp::erf, a); }
Scalar floor(const Scalar& a) { return Scalar::make(ScalarOp::floor, a); }

Scalar rounded(const Scalar& a, DType dtype) {
  require(is_float(dtype), "expr: rounds to floats alone (got ", dtype, ")");
  if (dtype == DType::f32) return a;
  return Scalar::make(dtype == DType::bf16 ? ScalarOp::bf16 : ScalarOp::f16, a);
}

// ---- flattening ----------------------------------------------------------------------------

namespace {

// Appends expressions to an instruction list, each distinct instruction once.
class Flattener {
 public:
  explicit Flattener(std::vector<Expr::Instruction>& code) : code_(code) {}

  int32_t add(const Scalar& s) {
    const Scalar::Node* key = &s.node();
    if (const auto it = done_.find(key); it != done_.end()) return it->second;
    Expr::Instruction i{key->op, -1, -1, -1, key->value};
    int32_t* slots[] = {&i.a, &i.b, &i.c};
    for (size_t k = 0; k < key->arguments.size(); ++k) *slots[k] = add(key->arguments[k]);
    // by bits: NaN is equal to nothing, and 0 and -0 are not one number
    const auto same = std::tuple(i.op, i.a, i.b, i.c, std::bit_cast<uint64_t>(i.value));
    const auto [it, fresh] = known_.try_emplace(same, static_cast<int32_t>(code_.size()));
    if (fresh) code_.push_back(i);
    kept_.push_back(s);  // keeps the node's address from being used again
    return done_[key] = it->second;
  }

 private:
  std::vector<Expr::Instruction>& code_;
  std::unordered_map<const Scalar::Node*, int32_t> done_;
  std::map<std::tuple<ScalarOp, int32_t, int32_t, int32_t, uint64_t>, int32_t> known_;
  std::vector<Scalar> kept_;
};

// The derivatives of one instruction with respect to its arguments, times `dy`.
std::vector<Scalar> argument_gradients(ScalarOp op, std::span<const Scalar> x, const Scalar& y,
                                       const Scalar& dy) {
  switch (op) {
    case ScalarOp::input:
    case ScalarOp::constant: return {};
    case ScalarOp::add: return {dy, dy};
    case ScalarOp::sub: return {dy, -dy};
    case ScalarOp::mul: return {dy * x[1], dy * x[0]};
    case ScalarOp::div: return {dy / x[1], -(dy * y / x[1])};
    case ScalarOp::min: return {dy * (1.0 - less(x[1], x[0])), dy * less(x[1], x[0])};
    case ScalarOp::max: return {dy * (1.0 - less(x[0], x[1])), dy * less(x[0], x[1])};
    case ScalarOp::less: return {0.0, 0.0};
    case ScalarOp::pow: return {dy * x[1] * pow(x[0], x[1] - 1.0), dy * y * log(x[0])};
    case ScalarOp::neg: return {-dy};
    case ScalarOp::abs: return {dy * (less(0.0, x[0]) - less(x[0], 0.0))};
    case ScalarOp::sqrt: return {dy * 0.5 / y};
    case ScalarOp::rsqrt: return {dy * -0.5 * y * y * y};
    case ScalarOp::exp: return {dy * y};
    case ScalarOp::log: return {dy / x[0]};
    case ScalarOp::sin: return {dy * cos(x[0])};
    case ScalarOp::cos: return {-(dy * sin(x[0]))};
    case ScalarOp::tanh: return {dy * (1.0 - y * y)};
    case ScalarOp::sigmoid: return {dy * y * (1.0 - y)};
    case ScalarOp::erf: return {dy * 1.1283791670955126 * exp(-(x[0] * x[0]))};  // 2/sqrt(pi)
    case ScalarOp::floor: return {0.0};
    case ScalarOp::bf16:
    case ScalarOp::f16: return {dy};
    case ScalarOp::select: return {0.0, select(x[0], dy, 0.0), select(x[0], 0.0, dy)};
  }
  return {};
}

}  // namespace

Expr::Expr(int64_t inputs, std::span<const Scalar> results) : inputs_(inputs) {
  Flattener flatten(code_);
  for (const Scalar& r : results) results_.push_back(flatten.add(r));
  for (const Instruction& i : code_)
    require(i.op != ScalarOp::input || i.value < static_cast<double>(inputs), "expr: input ",
            i.value, " is out of range (", inputs, " inputs)");
}

std::vector<Scalar> Expr::apply(std::span<const Scalar> arguments) const {
  require(static_cast<int64_t>(arguments.size()) == inputs_, "expr: needs ", inputs_,
          " arguments (got ", arguments.size(), ")");
  std::vector<Scalar> v;
  for (const Instruction& i : code_) {
    if (i.op == ScalarOp::input) {
      v.push_back(arguments[static_cast<size_t>(i.value)]);
    } else if (i.op == ScalarOp::constant) {
      v.emplace_back(i.value);
    } else {
      std::vector<Scalar> x;
      for (const int32_t a : arguments_of(i)) x.push_back(v[static_cast<size_t>(a)]);
      v.push_back(scalar_of(i.op, x));
    }
  }
  std::vector<Scalar> out;
  for (const int32_t r : results_) out.push_back(v[static_cast<size_t>(r)]);
  return out;
}

std::vector<Scalar> Expr::gradient(std::span<const Scalar> arguments,
                                   std::span<const Scalar> weights) const {
  Expr whole = *this;  // every instruction as a result, to have the forward values at hand
  whole.results_.clear();
  for (size_t i = 0; i < code_.size(); ++i) whole.results_.push_back(static_cast<int32_t>(i));
  const std::vector<Scalar> v = whole.apply(arguments);
  std::vector<Scalar> d(code_.size(), Scalar(0.0));
  for (size_t k = 0; k < results_.size(); ++k) {
    Scalar& slot = d[static_cast<size_t>(results_[k])];
    slot = slot + weights[k];
  }
  std::vector<Scalar> out(static_cast<size_t>(inputs_), Scalar(0.0));
  for (size_t i = code_.size(); i-- > 0;) {
    const Instruction& in = code_[i];
    if (d[i].is_constant(0)) continue;
    if (in.op == ScalarOp::input) {
      Scalar& slot = out[static_cast<size_t>(in.value)];
      slot = slot + d[i];
      continue;
    }
    const std::vector<int32_t> index = arguments_of(in);
    std::vector<Scalar> x;
    for (const int32_t a : index) x.push_back(v[static_cast<size_t>(a)]);
    const std::vector<Scalar> dx = argument_gradients(in.op, x, v[i], d[i]);
    for (size_t k = 0; k < dx.size(); ++k) {
      Scalar& slot = d[static_cast<size_t>(index[k])];
      slot = slot + dx[k];
    }
  }
  return out;
}

void Expr::evaluate(std::span<const double> in, std::span<double> out) const {
  std::vector<double> v(code_.size());
  const auto at = [&](int32_t k) { return k < 0 ? 0.0 : v[static_cast<size_t>(k)]; };
  for (size_t i = 0; i < code_.size(); ++i) {
    const Instruction& c = code_[i];
    if (c.op == ScalarOp::input)
      v[i] = in[static_cast<size_t>(c.value)];
    else if (c.op == ScalarOp::constant)
      v[i] = c.value;
    else
      v[i] = ebb::evaluate(c.op, at(c.a), at(c.b), at(c.c));
  }
  for (size_t k = 0; k < results_.size(); ++k) out[k] = at(results_[k]);
}

double Expr::flops() const {
  double n = 0;
  for (const Instruction& i : code_) n += info_of(i.op).flops;
  return n;
}

bool Expr::uses(int64_t input) const {
  for (const Instruction& i : code_)
    if (i.op == ScalarOp::input && static_cast<int64_t>(i.value) == input) return true;
  return false;
}

// ---- text ----------------------------------------------------------------------------------

std::string Expr::text() const {
  const auto name = [&](int32_t k) {
    const Instruction& i = code_[static_cast<size_t>(k)];
    if (i.op == ScalarOp::input) return str("x", static_cast<int64_t>(i.value));
    if (i.op == ScalarOp::constant) return number_text(i.value);
    return str("t", k);
  };
  std::string body, out;
  for (size_t k = 0; k < code_.size(); ++k) {
    const Instruction& i = code_[k];
    std::string arguments;
    for (const int32_t a : arguments_of(i)) arguments += (arguments.empty() ? "" : ",") + name(a);
    if (arguments.empty()) continue;
    body += (body.empty() ? "" : ";") + str("t", k, "=", info_of(i.op).name, "(", arguments, ")");
  }
  for (const int32_t r : results_) out += (out.empty() ? "" : ",") + name(r);
  return str("<", inputs_, "|", body, "|", out, ">");
}

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t at = std::min(text.find(separator), text.size());
    out.push_back(text.substr(0, at));
    text.remove_prefix(std::min(at + 1, text.size()));
  }
  return out;
}

}  // namespace

void Expr::parse(std::string_view text) {
  require(text.size() > 2 && text.front() == '<' && text.back() == '>',
          "expr: must stand in <> (got '", text, "')");
  std::string_view rest = text.substr(1, text.size() - 2);
  const size_t first = rest.find('|'), last = rest.rfind('|');
  require(first != std::string_view::npos && first != last, "expr: needs two bars (got '", text,
          "')");
  const int64_t inputs = parse_integer(rest.substr(0, first), "expr");
  require(inputs >= 0 && inputs < 1 << 20, "expr: bad number of inputs (", inputs, ")");
  std::map<std::string, Scalar, std::less<>> names;
  const auto value = [&](std::string_view name) -> Scalar {
    if (!name.empty() && name[0] == 'x')
      return Scalar::input(parse_integer(name.substr(1), "expr"));
    if (const auto it = names.find(name); it != names.end()) return it->second;
    return parse_number(name, "expr");
  };
  for (const std::string_view line : split(rest.substr(first + 1, last - first - 1), ';')) {
    const size_t eq = line.find('='), open = line.find('(');
    require(eq != std::string_view::npos && open != std::string_view::npos && open > eq &&
                line.back() == ')',
            "expr: expected t=f(...) (got '", line, "')");
    const ScalarOpInfo& info = find_known(
        "expr: unknown function", line.substr(eq + 1, open - eq - 1), table, &ScalarOpInfo::name);
    std::vector<Scalar> x;
    for (const auto a : split(line.substr(open + 1, line.size() - open - 2), ','))
      x.push_back(value(a));
    require(static_cast<int>(x.size()) == info.arguments && !x.empty(), "expr: ", info.name,
            " takes ", info.arguments, " arguments (got ", x.size(), ")");
    names.insert_or_assign(std::string(line.substr(0, eq)), scalar_of(info.op, x));
  }
  std::vector<Scalar> results;
  for (const auto r : split(rest.substr(last + 1), ',')) results.push_back(value(r));
  *this = Expr(inputs, results);
}

}  // namespace ebb
