// Locks of open files and folders between processes.
#pragma once

namespace ebb {

enum class LockFor : unsigned char { reading, writing };
// Takes flock()'s lock, shared by all who read or for the one who writes; it ends with the last
// descriptor, also by the death of the process. False: another one has it. Where the file system
// has no locks, nobody has one.
bool try_lock(int descriptor, LockFor use);

}  // namespace ebb
