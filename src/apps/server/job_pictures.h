// Pictures of jobs that are finished, for protocols that answer with them.
#pragma once

#include <string>
#include <vector>

#include "apps/server/job.h"
#include "apps/server/store.h"

namespace ebb::server {

// Throws HttpFault with the job's error, where it has one.
void throw_if_failed(const JobView& v);
// The files of all pictures of a job, in order. Throws HttpFault 507 where some are not there any
// more, as those in memory are bounded, and names how many.
std::vector<std::string> files_of_pictures(Store& store, const JobView& v);
// Throws HttpFault 422 for a job whose pictures lie in memory and might not fit there: of 3 bytes a
// pixel.
void check_fits_memory(const JobSpec& spec, size_t most_bytes);

}  // namespace ebb::server
