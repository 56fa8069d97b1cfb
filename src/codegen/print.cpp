#include <bit>

#include <fmt/format.h>

#include "codegen/ir.h"

namespace ebb::codegen {
namespace {

std::string_view name_of(Kind kind) {
  constexpr std::string_view names[] = {"pred", "u32", "i32", "u64", "f32"};
  return names[static_cast<size_t>(kind)];
}

constexpr std::string_view comparisons[] = {"lt", "le", "gt", "ge", "eq", "ne"};

std::string operand(const Kernel& kernel, int32_t id) {
  const Value& v = kernel.value(id);
  if (v.of == Value::Class::variable) return fmt::format("${}", id);
  if (!v.constant()) return fmt::format("%{}", id);
  if (v.kind == Kind::f32)
    return fmt::format("{}f", std::bit_cast<float>(static_cast<uint32_t>(v.bits)));
  if (v.kind == Kind::i32) return fmt::format("{}", static_cast<int32_t>(v.bits));
  return fmt::format("{}", v.bits);
}

}  // namespace

std::string print(const Kernel& kernel) {
  std::string text = fmt::format("kernel {} threads {}\n", kernel.name, kernel.threads);
  for (size_t k = 0; k < kernel.shared_bytes.size(); ++k)
    text += fmt::format("shared {}: {} bytes\n", k, kernel.shared_bytes[k]);
  size_t depth = 1;
  for (const Instruction& i : kernel.code) {
    if (i.op == Op::end_when || i.op == Op::end_loop || i.op == Op::otherwise) --depth;
    text.append(2 * depth, ' ');
    if (i.op == Op::when || i.op == Op::loop || i.op == Op::otherwise) ++depth;
    for (int32_t r = 0; r < i.results; ++r)
      text += fmt::format("%{}:{} ", i.result + r, name_of(kernel.value(i.result + r).kind));
    if (i.results > 0) text += "= ";
    text += info_of(i.op).name;
    if (i.op == Op::compare)
      text += fmt::format(".{}", comparisons[i.detail]);
    else if (i.detail != 0)
      text += fmt::format(".{}", i.detail);
    for (int k = 0; k < i.operands; ++k) text += " " + operand(kernel, kernel.operand(i, k));
    if (i.number != 0) text += fmt::format(" [{}]", i.number);
    text += '\n';
  }
  return text;
}

}  // namespace ebb::codegen
