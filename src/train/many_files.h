// What readers of folders with many files share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::train {

// Calls work(i) for i in [0,n) from several threads, 0: as many as this process may use. The first
// exception is thrown here.
void parallel(int64_t n, int64_t threads, const std::function<void(int64_t)>& work);

// By its name: .png, .jpg, .jpeg, .webp in any case.
bool is_picture_name(std::string_view name);

// "files ... (3): a.png, b.png, ...", the number where it needs no other words for one of them.
std::string listed(std::string_view what, const std::vector<std::string>& names);

}  // namespace ebb::train
