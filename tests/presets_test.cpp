// The choices of kernels that come with the program (src/runtime/presets/): every line is a use of
// an op, and names a kernel and a candidate that are there.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "backends.h"
#include "base/fields.h"
#include "ops/table.h"
#include "runtime/tuner.h"
#include "support/files.h"
#include "support/source_folder.h"

namespace ebb::test::presets_test {
namespace {

namespace fs = std::filesystem;

struct Preset {
  std::string where;  // file and line
  std::string device, use, choice;
  double us = 0;

  std::string kernel() const { return choice.substr(0, choice.find(' ')); }
};

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> out;
  for (size_t at; (at = text.find(separator)) != std::string_view::npos;) {
    out.emplace_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  out.emplace_back(text);
  return out;
}

std::vector<Preset> presets() {
  std::vector<Preset> all;
  for (const auto& file :
       fs::directory_iterator(fs::path(ebb::testing::source_folder()) / "src/runtime/presets")) {
    std::ifstream in(file.path());
    int64_t number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      if (line.empty() || line[0] == '#') continue;
      const std::string where = str(file.path().filename().string(), ":", number);
      const auto part = split(line, " | ");
      constexpr std::string_view begin = "preset, ";
      if (part.size() != 4 || !part[0].starts_with(begin) || !part[3].ends_with(" us")) {
        ADD_FAILURE() << where << " is no preset: " << line;
        continue;
      }
      const double us = parse_number(part[3].substr(0, part[3].size() - 3), where);
      all.push_back({where, part[0].substr(begin.size()), part[1], part[2], us});
    }
  }
  return all;
}

// Uses that share a choice whatever their expressions compute: of these only sizes are there,
// "<inputs|results|work>".
const std::regex& any_expression() {
  static const std::regex r(R"(<(\d+)\|(\d+)\|[0-9.e+]+>)");
  return r;
}

// Reads what Signature::text() wrote, with some expressions for those that are not there; then
// without the types of the outputs. Throws Error.
Signature parse_use(const std::string& text) {
  const size_t types = text.find(' '), brace = text.find(" {");
  const OpDef& op = find_op(text.substr(0, types));
  Signature s{&op, op.attrs(), {}, {}, ""};
  for (const std::string& t : split(text.substr(types + 1, brace - types - 1), "],"))
    s.in.push_back(parse_type(t.ends_with(']') ? t : t + "]"));
  if (brace == std::string::npos) return s;
  std::string attrs = text.substr(brace + 1);
  for (std::smatch m; std::regex_search(attrs, m, any_expression());) {
    const std::vector<Scalar> results(std::stoul(m[2]), Scalar::input(0));
    attrs = m.prefix().str() + Expr(std::stol(m[1]), results).text() + m.suffix().str();
  }
  s.attrs = op.attrs().parsed(attrs);
  if (!std::regex_search(text, any_expression())) s.out = op.infer(s);
  return s;
}

// Kernels are named where they are defined: in a program without CUDA, by the sources.
bool is_there(const std::string& op, const std::string& kernel) {
  const auto& all = kernels_of(op, "cuda");
  if (!all.empty())
    return std::ranges::any_of(all, [&](const Kernel* k) { return k->name == kernel; });
  const fs::path ops = fs::path(ebb::testing::source_folder()) / "src/ops";
  for (const auto& file : fs::recursive_directory_iterator(ops))
    if (file.is_regular_file() &&
        fs::relative(file.path(), ops).string().find("cuda") != std::string::npos &&
        ebb::testing::file_bytes(file.path()).find('"' + kernel + '"') != std::string::npos)
      return true;
  return false;
}

}  // namespace

TEST(presets, every_line__is_a_use_of_an_op_and_a_kernel_that_is_there) {
  std::set<std::pair<std::string, std::string>> kernels, uses;
  for (const Preset& p : presets()) {
    EXPECT_TRUE(uses.emplace(p.device, p.use).second) << p.where << " stands twice";
    EXPECT_GT(p.us, 0) << p.where;
    try {
      const Signature s = parse_use(p.use);
      if (!std::regex_search(p.use, any_expression())) {
        EXPECT_EQ(s.text(), p.use) << p.where;
      }
      kernels.emplace(s.op->name, p.kernel());
    } catch (const Error& e) {
      ADD_FAILURE() << p.where << ": " << e.what();
    }
  }
  EXPECT_GT(uses.size(), 0u);
  for (const auto& [op, kernel] : kernels) EXPECT_TRUE(is_there(op, kernel)) << op << ' ' << kernel;
}

// Else they would count for nothing. The device of each file has a description (`chip.h`), so that
// it need not be here.
TEST(presets, choices__are_among_the_candidates) {
  if (only("cuda").empty()) GTEST_SKIP() << "built without CUDA";
  std::map<std::string, Context> chips;  // by the file's name
  int64_t checked = 0;
  for (const Preset& p : presets()) {
    if (std::regex_search(p.use, any_expression())) continue;
    const std::string chip = p.where.substr(0, p.where.find('.'));
    if (!chips.contains(chip)) chips.emplace(chip, open_context("cuda:" + chip));
    const Device& device = *chips.at(chip).device;
    const Signature s = parse_use(p.use);
    std::vector<const Kernel*> kernels = kernels_of(s.op->name, "cuda");
    std::erase_if(kernels, [&](const Kernel* k) { return !k->supports(s, device); });
    const auto all = candidates_of(kernels, s, device);
    EXPECT_TRUE(
        std::ranges::any_of(all, [&](const Choice& c) { return choice_text(c) == p.choice; }))
        << p.where << ": " << p.choice;
    ++checked;
  }
  EXPECT_GT(checked, 1000);
}

}  // namespace ebb::test::presets_test
