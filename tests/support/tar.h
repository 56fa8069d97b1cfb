// tar archives as tests write them.
#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace ebb::testing {

inline std::string tar_member(const std::string& name, const std::string& data, char type = '0') {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  char size[13];
  std::snprintf(size, sizeof size, "%011zo", data.size());
  put(0, name), put(100, "0000644"), put(124, size), put(148, "        ");
  put(156, std::string(1, type)), put(257, std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", sum);
  put(148, digits);
  std::string out = header + data;
  return out.append((512 - data.size() % 512) % 512, '\0');
}

inline std::string tar_end() { return std::string(1024, '\0'); }

inline std::string tar_of(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out;
  for (const auto& [name, data] : files) out += tar_member(name, data);
  return out + tar_end();
}

}  // namespace ebb::testing
