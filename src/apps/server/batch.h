// Batches of jobs: which of those that wait may join the one that runs, and whose pictures are
// being made. docs/server.md tells the rules.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/server/engine.h"

namespace ebb::server {

// The settings that jobs of a batch share, as text: all but prompts, seed, number of pictures and
// where the pictures of the request lie. "": the job joins none.
std::string batch_key(cli::GenerateFlags flags, const Job& job);

// Of the jobs that wait, in their order, those that run with `lead`, of `most` pictures together at
// most. None passes another one of its client.
using Jobs = std::vector<std::shared_ptr<Job>>;
Jobs joining(const Job& lead, const Jobs& waiting, int64_t most,
             const std::function<bool(const Job&)>& joins);

// A job of a batch. `ends` is called once, with completed or cancelled; it goes on alone where it
// is not.
struct BatchMember {
  std::shared_ptr<const Job> job;
  JobEvents* events = nullptr;
  int64_t next = 0;  // number of its first picture that is not there
  std::function<void(JobStatus)> ends;
  bool open = true;  // it has not ended
};

// What an engine makes of a batch, and whom it tells.
class BatchRun {
 public:
  explicit BatchRun(std::span<BatchMember> members);

  struct Slot {
    size_t member = 0;
    int64_t index = 0;  // of the job's pictures
    bool wanted = true;
  };
  // The next pictures, at most so many; none: all are made.
  const std::vector<Slot>& take(int64_t most);
  const std::vector<Slot>& slots() const { return slots_; }
  // Tells all members; those that are cancelled end, and those that skip leave what is being made.
  // False: nobody wants it any more.
  bool progress(JobProgress p);
  // Of the slot: handed out where it is wanted. The job ends behind its last one.
  void picture(size_t slot, MadePicture made);
  // The first slot of each member that wants a preview.
  std::vector<size_t> previews();

 private:
  int64_t images(size_t member) const { return members_[member].job->spec.images(); }
  void end(size_t member, JobStatus status);
  void leave(size_t member);  // what is being made of it, or else its next picture
  bool is_wanted() const;

  std::span<BatchMember> members_;
  std::vector<int64_t> taken_;  // by member: the first picture that no slot had
  std::vector<Slot> slots_;
};

}  // namespace ebb::server
