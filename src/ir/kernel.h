// Kernel: an implementation of an op on a backend. Zero or more per op and backend, in the op's
// folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device.h"
#include "ir/op.h"

namespace ebb {

// A tuning candidate of a kernel: named numbers.
struct Tune {
  std::vector<std::pair<std::string, int64_t>> values;
  int64_t value(std::string_view name, int64_t otherwise) const {
    for (const auto& [n, v] : values)
      if (n == name) return v;
    return otherwise;
  }
  bool operator==(const Tune&) const = default;
};

// Addresses on the kernel's device, in the order of the signature, which says how they are aligned:
// no kernel asks them.
struct Call {
  std::vector<void*> in, out;
  void* workspace = nullptr;  // Program::workspace bytes, 64-byte aligned
};

// A kernel prepared for one signature: all decisions are made, run only enqueues work.
struct Program {
  int64_t workspace = 0;                 // bytes of scratch memory
  std::function<void(const Call&)> run;  // no allocation, no synchronisation
};

struct Kernel {
  std::string_view op, name;
  // Whether the kernel computes this signature correctly on this device.
  bool (*supports)(const Signature&, const Device&);
  Program (*prepare)(const Signature&, const Tune&, Device&);
  // Candidates for the tuner, best guess first; null: one.
  std::vector<Tune> (*space)(const Signature&, const Device&) = nullptr;
  // The estimated time of a use that it supports, in microseconds. Of several kernels the one with
  // the least is preferred, and measurements correct it. Null: no other kernel supports its uses.
  double (*cost)(const Signature&, const Device&) = nullptr;
  // Kernels of one family are as fast, whatever their ops. "": of its own.
  std::string_view family = "";
  // An output may share the memory of an input of the same type.
  bool in_place = false;
  // Which output may share memory with which input; null: every pair.
  bool (*may_alias)(const Signature&, size_t out, size_t in) = nullptr;
  // The outputs alias the first input under another type; nothing runs.
  bool alias = false;
  // A cooperative kernel: its thread blocks wait for each other, so all must be co-resident. A plan
  // runs none beside another.
  bool cooperative = false;
  // What a user should know where this kernel serves a use: why it is slow there. "" or null:
  // nothing. The text of a plan has it behind the step, and the context's log gets it.
  std::string_view (*note)(const Signature&) = nullptr;

  std::string_view note_on(const Signature& s) const { return note ? note(s) : ""; }
};

}  // namespace ebb
