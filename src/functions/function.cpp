#include "functions/function.h"

#include "base/error.h"
#include "base/names.h"
#include "base/text.h"
#include "functions/backward.h"

#define X(name)                     \
  namespace ebb::functions::table { \
  Function name();                  \
  }
#include "ebb/gen/functions.inc"
#undef X

namespace ebb::functions {
namespace {

std::vector<Function> made() {
  std::vector<Function> all;
  const auto take = [&](const Function& f) {
    all.push_back(f);
    all.back().has_backward = f.in_place == 0;
    if (all.back().has_backward) all.push_back(backward(f));
  };
#define X(name) take(table::name());
#include "ebb/gen/functions.inc"
#undef X
  return all;
}

struct TypeName {
  const char* operator()(int64_t) const { return "int"; }
  const char* operator()(double) const { return "float"; }
  const char* operator()(bool) const { return "bool"; }
  const char* operator()(const std::string&) const { return "str"; }
};

struct DefaultText {
  std::string operator()(int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return number_text(v); }
  std::string operator()(bool v) const { return v ? "True" : "False"; }
  std::string operator()(const std::string& v) const { return "\"" + v + "\""; }
};

std::string result_types(const Function& f) {
  if (f.in_place > 0) return "()";
  if (f.results.empty()) return "Tensor[]";
  if (f.results.size() == 1) return "Tensor";
  return str("(", listed(std::vector<std::string>(f.results.size(), "Tensor")), ")");
}

std::vector<std::string> declared_operands(const Function& f) {
  std::vector<std::string> out;
  for (size_t i = 0; i < f.operands.size(); ++i) {
    const Operand& o = f.operands[i];
    static constexpr const char* types[] = {"Tensor", "Tensor?", "Tensor[]"};
    const std::string type = i < f.in_place ? str("Tensor(", static_cast<char>('a' + i), "!)")
                                            : types[static_cast<size_t>(o.kind)];
    out.push_back(str(type, " ", o.name));
  }
  return out;
}

std::string declaration(const std::string& name, const std::vector<std::string>& arguments,
                        const Function& f) {
  return str(name, "(", listed(arguments), ") -> ", result_types(f));
}

}  // namespace

std::span<const Function> all_functions() {
  static const std::vector<Function> all = made();
  return all;
}

const Function& find_function(std::string_view name) {
  std::vector<std::string> names;
  for (const Function& f : all_functions()) {
    if (f.name == name) return f;
    names.push_back(f.name);
  }
  fail_unknown("functions: unknown name", name, names);
}

std::string schema(const Function& f) {
  std::vector<std::string> arguments = declared_operands(f);
  for (const Attribute& a : f.attributes)
    arguments.push_back(
        str(std::visit(TypeName{}, a.value), " ", a.name, "=", std::visit(DefaultText{}, a.value)));
  return declaration(f.name, arguments, f);
}

std::string numbered_schema(const Function& f) {
  if (!f.has_backward) return "";
  std::vector<std::string> arguments = declared_operands(f);
  arguments.emplace_back("int attributes");
  return declaration(numbered_name(f), arguments, f);
}

std::string numbered_name(const Function& f) { return f.name + "_numbered"; }

std::vector<Operand> operands(std::initializer_list<std::string_view> names) {
  std::vector<Operand> out;
  for (std::string_view n : names) {
    Operand::Kind kind = Operand::Kind::tensor;
    if (n.ends_with("?")) {
      kind = Operand::Kind::optional;
      n.remove_suffix(1);
    } else if (n.ends_with("...")) {
      kind = Operand::Kind::list;
      n.remove_suffix(3);
    }
    out.push_back({std::string(n), kind});
  }
  return out;
}

Attribute attribute_of(const Field& field) {
  AttributeValue value;
  if (const auto* i = std::get_if<int64_t*>(&field.ref))
    value = **i;
  else if (const auto* d = std::get_if<double*>(&field.ref))
    value = **d;
  else if (const auto* b = std::get_if<bool*>(&field.ref))
    value = **b;
  else
    value = field_text(field);
  return {field.name, std::move(value)};
}

namespace {

void set_field_to(const Field& field, const AttributeValue& value) {
  std::visit(
      [&](auto* to) {
        using T = std::remove_pointer_t<decltype(to)>;
        constexpr bool is_number = std::is_arithmetic_v<T>;
        const auto* from = std::get_if<std::conditional_t<is_number, T, std::string>>(&value);
        require(from != nullptr, "attribute '", field.name, "' is of another type");
        if constexpr (is_number)
          *to = *from;
        else
          set_field(field, *from);
      },
      field.ref);
}

}  // namespace

void set_fields(std::string_view function, const std::vector<Field>& fields,
                std::span<const AttributeValue> values) {
  require(fields.size() == values.size(), function, ": needs ", fields.size(), " attributes (got ",
          values.size(), ")");
  try {
    for (size_t i = 0; i < fields.size(); ++i) set_field_to(fields[i], values[i]);
  } catch (const Error& e) {
    fail(function, ": ", e.what());
  }
}

}  // namespace ebb::functions
