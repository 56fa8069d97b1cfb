#include "base/lock.h"

#include <sys/file.h>

#include <cerrno>

namespace ebb {

bool try_lock(int descriptor, LockFor use) {
  const int operation = use == LockFor::reading ? LOCK_SH : LOCK_EX;
  return ::flock(descriptor, operation | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

}  // namespace ebb
