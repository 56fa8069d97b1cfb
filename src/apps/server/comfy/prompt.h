// Prompts: graphs of ComfyUI's protocol as jobs, and what is told of those jobs.
#pragma once

#include <string>

#include "apps/server/comfy/uploads.h"
#include "apps/server/job.h"
#include "apps/server/service.h"

namespace ebb::server::comfy {

// The settings that a graph means. Names of inputs that have no effect are told by `call`. Throws
// HttpFault, GraphFault among it.
JobSpec read_graph(const Call& call, const Json& graph);

// ---- jobs of this protocol; others have no such note
bool is_prompt(const Job& job);
// The client's own name, "" where it gave none: events of the job are sent to it alone.
std::string client_of(const Job& job);
std::string sampler_of(const Job& job);  // the id of the node that takes the time
// [number, id, graph, {}, ids of nodes that show].
Json queue_entry(const Job& job);
// {"NODE":{"images":[{"filename","subfolder","type"}]}}.
Json outputs_of(const JobView& v);
// {"prompt","outputs","status","meta"} of a finished one.
Json history_entry(const JobView& v);
// The data of events that tell how one ended: "execution_error", "execution_interrupted".
Json end_of(const JobView& v);

// {"error":{"type","message","details","extra_info"},"node_errors":{}}.
Reply render_fault(const HttpFault& fault, const Request& request);
// The same routes twice: all are under /api, too.
std::vector<Route> with_prefixes(std::vector<Route> routes);

}  // namespace ebb::server::comfy
