// Commands whose work is that of several processes, a rank each.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/terminal.h"
#include "ranks/tcp_group.h"

namespace ebb::cli {

// Whether this process is a rank that says nothing: one of several, and not the first.
bool is_quiet();
// A line on standard error, of such a rank none.
void say_once(std::string_view line);

// What --gpus asks of this process: as many copies of it, with the same arguments, as ranks; the
// result is their exit code. None: there is nothing to start, as the flag is not given or this is
// such a copy. Throws Error for a number that is not there.
std::optional<int> start_copies(const std::string& gpus, const std::string& device);

// The group that this process was started as one rank of; null: it computes alone. Throws Error.
std::shared_ptr<ranks::TcpGroup> join_group();

// Of all ranks: where each drew a seed of its own, that of rank 0, which tells it. All call it.
void share_seed(DrawableSeed& seed, ranks::TcpGroup* group);

// Threads of this process: `asked`, or where that is 0 its share of the cores that several ranks of
// a host may use. 0 of one that computes alone. All ranks call it.
int64_t own_threads(int64_t asked, ranks::TcpGroup* group);

// As open_device(), of the GPU with the rank's number on its host, linked with those of the others.
Context open_device(CommonOptions o, ranks::TcpGroup* group);

// What `work` returns. Its Error ends all ranks, and is said once.
int run_ranked(ranks::TcpGroup* group, const std::function<int()>& work);

}  // namespace ebb::cli
