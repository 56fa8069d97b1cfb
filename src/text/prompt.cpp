#include "text/prompt.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "base/strength.h"
#include "base/utf8.h"
#include "text/python_text.h"
#include "text/unicode.h"

namespace ebb::text {
namespace {

const std::vector<std::string> syntax_names = {"a1111", "comfyui", "diffusers"};

// From # at `at` to the end of the line, with it.
size_t end_of_comment(std::u32string_view text, size_t at) {
  return std::min(std::min(text.find('\n', at), text.size() - 1) + 1, text.size());
}

// Comments go from # to the end of the line, wherever it stands; those that are a line first, with
// the end of the line before. Each leaves an end of a line.
std::u32string without_comments(const std::u32string& text, std::vector<std::string>& warnings) {
  std::u32string lines, out;
  size_t comments = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t hash = at == 0 && text[0] == '#' ? 0 : at + 1;
    const bool comment = (hash == 0 || text[at] == '\n') && hash < text.size() && text[hash] == '#';
    comments += comment;
    lines += comment ? U'\n' : text[at];
    at = comment ? end_of_comment(text, hash) : at + 1;
  }
  for (size_t at = 0; at < lines.size();) {
    const bool comment = lines[at] == '#';
    comments += comment;
    out += comment ? U'\n' : lines[at];
    at = comment ? end_of_comment(lines, at) : at + 1;
  }
  if (comments > 0)
    warnings.push_back(str("prompt: ", comments, " comment", comments > 1 ? "s" : "",
                           " removed, from # to the end of the line"));
  return out;
}

std::vector<std::u32string_view> split(std::u32string_view text, char32_t at) {
  std::vector<std::u32string_view> out;
  while (true) {
    const size_t end = text.find(at);
    out.push_back(text.substr(0, end));
    if (end == std::u32string_view::npos) return out;
    text.remove_prefix(end + 1);
  }
}

// Of a prompt, which the other programs read whatever its size.
double weight_of(std::u32string_view text, std::u32string_view where) {
  const auto value = python_float(text);
  require(value && std::isfinite(*value), "prompt: a weight must be a finite number, found ",
          shown(text), "  ", shown(where));
  return *value;
}

double lora_strength(std::u32string_view text, std::u32string_view where) {
  const double value = weight_of(text, where);
  require(is_strength(value), "prompt: a strength must be a number from ", -most_strength, " to ",
          most_strength, ", found ", shown(text), "  ", shown(where));
  return value;
}

// The arguments of <lora:...>: the name, then weights in order or by name.
LoraTag lora_tag(std::u32string_view tag, std::u32string_view arguments, Prompt& prompt) {
  const auto items = split(arguments, ':');
  LoraTag out{.name = to_utf8(items[0])};
  require(!out.name.empty(), "prompt: a lora tag must have a name  ", shown(tag));
  std::vector<double> weights;
  std::optional<double> text, unet;
  for (size_t i = 1; i < items.size(); ++i) {
    const size_t equals = items[i].find('=');
    const std::u32string_view key = items[i].substr(0, equals);
    if (equals == std::u32string_view::npos) {
      weights.push_back(lora_strength(items[i], tag));
    } else if (key == U"te" || key == U"unet") {
      (key == U"te" ? text : unet) = lora_strength(items[i].substr(equals + 1), tag);
    } else if (key == U"lbw") {
      out.block_weights = to_utf8(items[i].substr(equals + 1));
    } else {
      prompt.warnings.push_back(str("prompt: ", shown(key), " is ignored  ", shown(tag)));
    }
  }
  if (weights.size() > 2)
    prompt.warnings.push_back(str("prompt: only two weights are used  ", shown(tag)));
  out.text_strength = text.value_or(weights.empty() ? 1 : weights[0]);
  out.strength = unet.value_or(weights.size() > 1 ? weights[1] : out.text_strength);
  return out;
}

// Takes <kind:arguments> out of the text.
std::u32string without_tags(std::u32string_view text, Prompt& prompt) {
  std::u32string out;
  bool closed = true;  // there is a > further on
  for (size_t at = 0; at < text.size();) {
    size_t name_end = at + 1;
    while (text[at] == '<' && name_end < text.size() && python_word_char(text[name_end]))
      ++name_end;
    const bool tag = closed && text[at] == '<' && name_end > at + 1 && name_end < text.size() &&
                     text[name_end] == ':';
    const size_t end = tag ? text.find('>', name_end) : std::u32string_view::npos;
    closed = closed && (!tag || end != std::u32string_view::npos);
    if (end == std::u32string_view::npos || end == name_end + 1) {
      out += text[at++];
      continue;
    }
    const std::u32string_view whole = text.substr(at, end + 1 - at),
                              kind = text.substr(at + 1, name_end - at - 1);
    if (kind == U"lora" || kind == U"lyco") {
      prompt.loras.push_back(
          lora_tag(whole, text.substr(name_end + 1, end - name_end - 1), prompt));
    } else {
      prompt.warnings.push_back(
          str("prompt: tags of this kind are not known: removed  ", shown(whole)));
    }
    at = end + 1;
  }
  return out;
}

// "text :1.2" without what follows the text, and the weight.
PromptPart weighted_part(std::u32string_view text) {
  while (!text.empty() && python_space(text.back())) text.remove_suffix(1);
  const size_t colon = text.rfind(':');
  const std::u32string_view number =
      colon == std::u32string_view::npos ? U"" : stripped(text.substr(colon + 1));
  std::u32string_view digits = number;
  if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) digits.remove_prefix(1);
  const auto is_digit = [](char32_t c) { return decimal_digit(c) >= 0; };
  const bool is_number =
      std::ranges::any_of(digits, is_digit) &&
      std::ranges::all_of(digits, [&](char32_t c) { return c == '.' || is_digit(c); }) &&
      digits.find('.') == digits.rfind('.');
  if (!is_number) return {.text = to_utf8(text)};
  const double weight = weight_of(number, text);
  text = text.substr(0, colon);
  while (!text.empty() && python_space(text.back())) text.remove_suffix(1);
  return {.text = to_utf8(text), .weight = weight};
}

std::vector<PromptPart> split_parts(std::u32string_view text) {
  std::vector<PromptPart> out;
  size_t begin = 0;
  for (size_t at = text.find(U"AND"); at != std::u32string_view::npos; at = text.find(U"AND", at)) {
    if (whole_word_at(text, at, U"AND")) {
      out.push_back(weighted_part(text.substr(begin, at - begin)));
      begin = at + 3;
    }
    at += 3;
  }
  out.push_back(weighted_part(text.substr(begin)));
  return out;
}

}  // namespace

PromptSyntax prompt_syntax(std::string_view name) {
  const size_t at = find_name(name, syntax_names);
  if (at == syntax_names.size()) fail_unknown("prompt: unknown syntax", name, syntax_names);
  return static_cast<PromptSyntax>(at);
}

std::string_view prompt_syntax_name(PromptSyntax syntax) {
  return syntax_names[static_cast<size_t>(syntax)];
}

Prompt parse_prompt(std::string_view text, PromptSyntax syntax, bool negative) {
  Prompt out{.syntax = syntax};
  if (!valid_utf8(text))
    out.warnings.push_back("prompt: is not valid UTF-8; what is wrong was replaced by U+FFFD");
  std::u32string characters = decode_utf8(text);
  if (syntax != PromptSyntax::a1111) {
    if (characters.find(U"<lora:") != std::u32string::npos)
      out.warnings.push_back(
          str("prompt: <lora:...> is plain text in the syntax of ", prompt_syntax_name(syntax)));
    out.parts = {{.text = to_utf8(characters)}};
    return out;
  }
  characters = without_tags(without_comments(characters, out.warnings), out);
  out.parts =
      negative ? std::vector<PromptPart>{{.text = to_utf8(characters)}} : split_parts(characters);
  return out;
}

}  // namespace ebb::text
