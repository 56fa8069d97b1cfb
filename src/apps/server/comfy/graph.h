// Graph: a picture as ComfyUI's clients describe it, {"ID":{"class_type","inputs"}}, where an input
// is a value or a link ["ID", number of the output]. Read from the nodes that show pictures back.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/server/comfy/node_class.h"
#include "apps/server/fault.h"

namespace ebb::server::comfy {

// A graph that cannot be run: 400, with what is wrong by node and input.
class GraphFault : public HttpFault {
 public:
  GraphFault(const std::string& type, const std::string& message, const std::string& details,
             Json node_errors = Json::object());
  Json body;  // {"error":{"type","message","details","extra_info"},"node_errors"}
};

// One thing that is wrong with an input.
struct InputFault {
  std::string type, message, details, input;
  Json received = {};
};

struct WalkedGraph {
  ImageValue image;                                        // what is to be made
  std::vector<std::pair<std::string, std::string>> shows;  // ids of nodes, "output" or "temp"
  std::vector<std::string> ignored;                        // "ID.input", that nothing follows
};

// Throws GraphFault. Any number of nodes, linked in any way, needs no deeper stack.
WalkedGraph walk(const Json& graph, const Choices& choices);

// A fault of one node, as walk() throws it.
GraphFault fault_of_node(const Json& graph, const std::string& node, const InputFault& fault);

}  // namespace ebb::server::comfy
