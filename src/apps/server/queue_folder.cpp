// Jobs as files: what a queue that survives the process reads again.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "apps/cli/settings_file.h"
#include "apps/server/fault.h"
#include "apps/server/queue.h"
#include "apps/server/request_limits.h"
#include "apps/server/settings.h"
#include "base/json.h"
#include "base/parse_json.h"
#include "io/file.h"

namespace ebb::server {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view subject = "serve: job";
constexpr int64_t most_orders = int64_t{1} << 53;

std::string path_of(const std::string& folder, const Job& job, const std::string& ending) {
  return (fs::path(folder) / (job.file + ending)).string();
}

// The setting that names the file of an input.
std::string* place_of(JobSpec& spec, const std::string& field) {
  for (std::string& more : spec.more_inits)
    if (more == field) return &more;
  if (field == "init") return &spec.flags.modes.init;
  if (field == "mask") return &spec.flags.modes.mask;
  if (field == "image") return &spec.upscale.image;
  return nullptr;
}

int64_t whole(const Json& of, const char* name, int64_t least, int64_t most) {
  const Json& number = of.at(name);
  const bool fits = number.is_number_integer() && number >= least && number <= most;
  require(fits, subject, ": ", name, " must be a whole number from ", least, " to ", most, ", not ",
          json_text(number).substr(0, 100));
  return number.get<int64_t>();
}

// Unix time, before the year 10000.
double time_of(const Json& of) {
  constexpr int64_t most = 253402300800;
  const Json& created = of.at("created");
  const double out = created.is_number() ? created.get<double>() : -1;
  require(out >= 0 && out < static_cast<double>(most), subject,
          ": created must be a time from 0 to ", most, " s, not ",
          json_text(created).substr(0, 100));
  return out;
}

// The name of an input, which becomes a part of a file's name here.
std::string input_of(const Json& name) {
  auto out = name.get<std::string>();
  const bool is_plain = !out.empty() && out.size() <= 64 && std::ranges::all_of(out, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  });
  require(is_plain, subject, ": an input's name must be 1 to 64 letters, digits, _ and -, not \"",
          out, "\"");
  return out;
}

std::shared_ptr<Job> read_job(const fs::path& path) {
  const std::string text = io::read_whole_file(path.string(), subject, int64_t{16} << 20);
  const Json j = parse_json<Json>(text);
  require(j.is_object() && j.contains("settings") && j.contains("id"), subject,
          ": is not one of ebb's  ", path.string());
  auto job = std::make_shared<Job>();
  JobSpec& s = job->spec;
  job->id = j.at("id").get<std::string>();
  job->file = path.stem().string();
  job->created = time_of(j);
  job->done_before = whole(j, "done", 0, most_images);
  if (j.contains("order")) job->order = whole(j, "order", 0, most_orders);
  job->of_before = true;
  s.kind = j.at("kind") == "upscale" ? JobKind::upscale : JobKind::generate;
  s.client = j.at("client").get<std::string>();
  constexpr auto last_format = static_cast<int64_t>(io::PictureFormat::webp);
  s.format = static_cast<io::PictureFormat>(whole(j, "format", 0, last_format));
  s.quality = static_cast<int>(whole(j, "quality", 1, 100));
  s.shown = j.at("shown");
  s.note = j.value("note", Json());
  for (const auto& name : j.at("given")) s.given.insert(name.get<std::string>());
  for (const auto& name : j.at("inputs")) {
    s.inputs.push_back({input_of(name), {}});
    const std::string& field = s.inputs.back().field;
    if (field.starts_with(more_init))
      s.more_inits.push_back(path_of(path.parent_path().string(), *job, "." + field + ".png"));
  }
  cli::set_settings(s.flags.settings(true), s.flags.diffusion, j.at("settings").dump(),
                    std::string(subject));
  check_limits(s.flags, {}, 1);
  set_fields_json(fields_of(s.upscale), j.at("upscale").dump(), subject);
  return job;
}

}  // namespace

void write_inputs(const std::string& folder, Job& job) {
  io::make_folder(folder, subject);
  for (JobInput& input : job.spec.inputs) {
    const std::string path = path_of(folder, job, "." + input.field + ".png");
    require(io::write_new_file(path, input.png, subject), subject, ": is there already  ", path);
    if (std::string* place = place_of(job.spec, input.field))
      *place = path;
    else  // KIND=:strength..., of a control network
      for (std::string& text : job.spec.flags.control.control.texts)
        if (const size_t at = text.find("=" + input.field + ":"); at != text.npos)
          text.replace(at + 1, input.field.size(), path);
    input.png = {};
  }
}

void write_job(const std::string& folder, const Job& job, int64_t done) {
  JobSpec s = job.spec;
  Json inputs = Json::array();
  for (const JobInput& i : s.inputs) inputs.push_back(i.field);
  const Json j = {{"id", job.id},
                  {"created", job.created},
                  {"order", job.order},
                  {"done", done},
                  {"kind", s.kind == JobKind::upscale ? "upscale" : "generate"},
                  {"client", s.client},
                  {"format", static_cast<int>(s.format)},
                  {"quality", s.quality},
                  {"shown", s.shown},
                  {"note", s.note},
                  {"given", s.given},
                  {"inputs", std::move(inputs)},
                  {"settings", parse_json<Json>(cli::settings_json(s.flags.settings(true),
                                                                   s.flags.diffusion, -1, {}))},
                  {"upscale", parse_json<Json>(fields_json(fields_of(s.upscale)))}};
  io::write_whole_file(path_of(folder, job, ".json"), json_text(j), subject);
}

void give_up_job(const std::string& folder, const Job& job) {
  std::error_code ignored;
  fs::remove(path_of(folder, job, ".json"), ignored);
}

void remove_job(const std::string& folder, const Job& job) {
  give_up_job(folder, job);
  std::error_code ignored;
  for (const JobInput& i : job.spec.inputs)
    fs::remove(path_of(folder, job, "." + i.field + ".png"), ignored);
}

std::vector<std::shared_ptr<Job>> read_jobs(const std::string& folder,
                                            const std::function<void(const std::string&)>& says) {
  std::vector<std::shared_ptr<Job>> out;
  std::set<std::string> known;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".json") continue;
    try {
      out.push_back(read_job(entry.path()));
      known.insert(out.back()->file);
    } catch (const std::exception& e) {
      if (says) says(str(e.what(), "; it is left there  ", entry.path().string()));
      known.insert(entry.path().stem().string());
    }
  }
  // pictures of requests that ended with their process
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (const std::string stem = entry.path().filename().string();
        entry.path().extension() == ".png" && !known.contains(stem.substr(0, stem.find('.'))))
      fs::remove(entry.path(), ignored);
  std::ranges::sort(out, {}, [](const auto& job) { return std::pair(job->order, job->created); });
  return out;
}

}  // namespace ebb::server
