#include "apps/server/batch.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace ebb::server {
namespace {

constexpr std::string_view own_settings[] = {"prompt", "negative", "seed",
                                             "n",      "batch",    "first_image"};

// Names of the job's own files, which lie where `text` says, become the same for all.
std::string without_file(std::string text, const std::string& file) {
  for (size_t at = 0; !file.empty() && (at = text.find(file, at)) != text.npos;)
    text.erase(at, file.size());
  return text;
}

}  // namespace

std::string batch_key(cli::GenerateFlags flags, const Job& job) {
  if (job.spec.kind != JobKind::generate || flags.generate.batch_invariant ||
      !job.spec.more_inits.empty())
    return "";
  std::string out;
  for (const Field& f : flags.settings(false))
    if (std::ranges::find(own_settings, f.name) == std::end(own_settings))
      out += f.name + '=' + without_file(field_text(f), job.file) + '\n';
  for (const auto& [name, value] : flags.diffusion) out += name + '=' + value + '\n';
  return out;
}

Jobs joining(const Job& lead, const Jobs& waiting, int64_t most,
             const std::function<bool(const Job&)>& joins) {
  Jobs out;
  int64_t pictures = lead.spec.images();
  std::set<std::string_view> stay;  // clients of whom one waits on
  for (const std::shared_ptr<Job>& job : waiting) {
    if (pictures >= most) break;
    if (stay.contains(job->spec.client)) continue;
    if (pictures + job->spec.images() <= most && joins(*job)) {
      pictures += job->spec.images();
      out.push_back(job);
    } else {
      stay.insert(job->spec.client);
    }
  }
  return out;
}

BatchRun::BatchRun(std::span<BatchMember> members) : members_(members) {
  for (const BatchMember& m : members) taken_.push_back(m.next);
}

const std::vector<BatchRun::Slot>& BatchRun::take(int64_t most) {
  slots_.clear();
  for (size_t i = 0; i < members_.size(); ++i)
    while (members_[i].open && taken_[i] < images(i) && std::ssize(slots_) < most)
      slots_.push_back({i, taken_[i]++});
  return slots_;
}

bool BatchRun::is_wanted() const {
  if (slots_.empty()) return std::ranges::any_of(members_, &BatchMember::open);
  return std::ranges::any_of(slots_, &Slot::wanted);
}

void BatchRun::end(size_t member, JobStatus status) {
  members_[member].open = false;
  members_[member].ends(status);
}

void BatchRun::leave(size_t member) {
  bool makes = false;
  for (Slot& s : slots_)
    if (s.member == member && s.index >= members_[member].next) makes = true, s.wanted = false;
  if (!makes) taken_[member] = std::min(taken_[member] + 1, images(member));
  members_[member].next = taken_[member];
}

bool BatchRun::progress(JobProgress p) {
  for (size_t i = 0; i < members_.size(); ++i) {
    const BatchMember& m = members_[i];
    if (!m.open) continue;
    p.images = images(i), p.image = std::min(m.next, p.images - 1);
    if (m.events->progress(p)) continue;
    const bool skips = m.job->skip.exchange(false) && !m.job->cancel;
    leave(i);
    if (!skips)
      end(i, JobStatus::cancelled);
    else if (m.next == p.images)
      end(i, JobStatus::completed);
  }
  return is_wanted();
}

void BatchRun::picture(size_t slot, MadePicture made) {
  const Slot& s = slots_[slot];
  BatchMember& m = members_[s.member];
  if (!s.wanted || !m.open) return;
  made.index = s.index;
  m.events->picture(std::move(made));
  m.next = s.index + 1;
  if (m.next == images(s.member)) end(s.member, JobStatus::completed);
}

std::vector<size_t> BatchRun::previews() {
  std::vector<size_t> out;
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].wanted && (i == 0 || slots_[i - 1].member != slots_[i].member) &&
        members_[slots_[i].member].events->wants_preview())
      out.push_back(i);
  return out;
}

}  // namespace ebb::server
