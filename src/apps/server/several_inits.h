// Jobs of several start pictures: picture i of the job begins with start picture i, modulo their
// number, as a batch of A1111's does.
#pragma once

#include "apps/server/engine.h"

namespace ebb::server {

// As Engine::run(), of any job: of one with several start pictures each picture is run by itself,
// with the seed that it has in the whole.
void run_pictures(Engine& engine, const Job& job, int64_t first, JobEvents& events);

}  // namespace ebb::server
