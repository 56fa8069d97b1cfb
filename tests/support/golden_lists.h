// Golden files of noise levels: every case is compared or excused by name.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/golden_file.h"

namespace ebb::testing {

// "key=value key=value" of what describes a case, n= and whether the reference refused it or
// gave nan last.
inline std::string case_name(const nlohmann::json& c) {
  std::string out, steps, result = c.contains("error") ? " refused" : "";
  for (const auto& [key, value] : c.items()) {
    if (value.is_array() || key == "error" || key == "init_noise_sigma") continue;
    if (key == "n") steps = " n=" + value.dump();
    if (key == "n") continue;
    if (!out.empty()) out += ' ';
    if (value.is_object()) {
      out += case_name(value);
      continue;
    }
    out += key + '=' + (value.is_string() ? value.get<std::string>() : value.dump());
  }
  if (c.contains("sigmas") && c["sigmas"][0].is_string()) result = " nan";
  return out + steps + result;
}

// Cases that have `part` in their name are not compared.
struct Excuse {
  std::string part, reason;
};

// Calls `compare` for every case of the file that is not excused; it says whether it has anything
// to compare the case with. A case that is neither compared nor excused fails, and so does an
// excuse that excuses nothing.
inline void compare_every_case(const std::string& file, const std::vector<Excuse>& excuses,
                               const std::function<bool(const nlohmann::json&)>& compare) {
  const nlohmann::json golden = read_golden("samplers/" + file);
  std::vector<int> used(excuses.size());
  for (const nlohmann::json& c : golden.at("cases")) {
    const std::string name = case_name(c) + ' ';
    SCOPED_TRACE(name);
    bool excused = false;
    for (size_t i = 0; i < excuses.size() && !excused; ++i) {
      excused = name.find(excuses[i].part + ' ') != std::string::npos;
      used[i] += excused ? 1 : 0;
    }
    if (excused) continue;
    try {
      EXPECT_TRUE(compare(c)) << "neither compared nor excused";
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
  for (size_t i = 0; i < excuses.size(); ++i)
    EXPECT_GT(used[i], 0) << "no case is called '" << excuses[i].part << "'";
}

// How far levels may be from those of a reference in f32: relative; absolute; of tables, whose
// error is that of 1 - alpha_bar; and of lists in angles, whose rounding the tangent magnifies.
struct ListTolerance {
  double relative = 3e-6, absolute = 1e-7, table = 0, angle = 0;
  double at(double sigma) const {
    const double square = sigma * sigma;
    return relative * sigma + absolute + angle * (1 + square) +
           (sigma > 0 ? table * (sigma + 1 / sigma) : 0);
  }
};

inline void expect_list(const std::vector<double>& got, const nlohmann::json& want,
                        const ListTolerance& tolerance = {}) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(want[i].is_number()) << "level " << i << " is " << want[i];
    const double w = want[i];
    EXPECT_NEAR(got[i], w, tolerance.at(std::abs(w))) << "level " << i;
  }
}

}  // namespace ebb::testing
