// What is written beside its place first: its name, and what processes that died left of it.
#pragma once

#include <string>
#include <utility>

namespace ebb {

// `<path>.tmp-<pid>-<n>`: of this process and this call alone, as threads may want one at once.
std::string temporary_name(const std::string& path);

// Says that an open file or folder under such a name is being written, until its last descriptor is
// closed, also by the death of the process. False: remove_abandoned() of another process has just
// taken it away, so another one has to be made.
bool hold_temporary(int descriptor);

// Removes what lies under temporary names of `path` and is being written by nobody, on whatever
// host. Where the file system has no locks, all stays.
void remove_abandoned(const std::string& path);

// A descriptor that is closed in the end, or none: a negative number, as calls that fail give.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }
  // Now, for what close() may tell: an errno, 0 where nothing failed. None is left either way.
  int close();

 private:
  int number_;
};

}  // namespace ebb
