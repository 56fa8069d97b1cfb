// Emphasis: how much each piece of a prompt weighs, in the languages of A1111 and ComfyUI.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ebb::text {

struct WeightedText {
  std::string text;
  double weight = 1;
  bool new_chunk = false;  // A1111's BREAK: the text is empty, what follows starts a chunk

  bool operator==(const WeightedText&) const = default;
};

// A1111: (x) weighs 1.1 times as much, [x] 1/1.1, (x:1.3) 1.3 times; they multiply; a \ makes a
// bracket or another \ a character; open brackets end with the text. Neighbours of one weight are
// one piece. BREAK inside of brackets is a word of negative weight, as there; `warnings` says so.
// Throws Error "prompt: ..." on weights that are no finite numbers and on nesting that makes more
// than 50 M products.
std::vector<WeightedText> a1111_emphasis(std::string_view text, std::vector<std::string>& warnings);

// ComfyUI: (x) weighs 1.1 times as much, (x:1.3) weighs 1.3, whatever is around it; \( and \) are
// characters; unbalanced brackets are text. Throws Error "prompt: ..." if more than 200 are nested
// or a weight is not finite.
std::vector<WeightedText> comfyui_emphasis(std::string_view text);

}  // namespace ebb::text
