// Pickles of Python, read as data: nothing in them is imported, looked up or called.
//
// A pickle is a program for a stack machine that names callables and what they are called with.
// Here a call becomes a node that says so; who reads the nodes decides which calls mean something.
// Opcodes of protocols 0 to 5, but for those that only programs of extensions and of old classes
// need (EXT*, INST, OBJ, buffers out of band).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::io {

struct PickleNode {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    number,
    text,
    bytes,
    tuple,
    list,
    set,
    dict,        // items: key, value, key, value, ...
    global,      // text: "module name"
    call,        // items: callable, arguments (a tuple)
    persistent,  // items: the id
    large,       // an integer of more than 64 bits; text: its bytes
  };
  Kind kind = Kind::none;
  int64_t integer = 0;  // and of a boolean
  double number = 0;
  std::string text = {};
  std::vector<uint32_t> items = {};  // indices of nodes
  std::vector<uint32_t> state = {};  // what BUILD sets on an object, one after another
};

struct Pickle {
  std::vector<PickleNode> nodes;
  uint32_t root = 0;
  size_t bytes = 0;  // that the pickle takes, with its STOP

  const PickleNode& operator[](uint32_t i) const { return nodes.at(i); }
};

// Reads the pickle that `bytes` begins with. Throws Error "pickle: <rule> (<numbers>)  <file>" on
// damage, on opcodes that are not read, and on more than a million nodes. Nodes may refer to each
// other in circles.
Pickle parse_pickle(std::span<const uint8_t> bytes, const std::string& file);

}  // namespace ebb::io
