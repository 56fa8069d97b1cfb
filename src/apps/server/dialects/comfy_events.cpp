// ComfyUI's API: the WebSocket that tells how prompts go on.
#include <algorithm>
#include <deque>

#include "apps/server/comfy/prompt.h"
#include "apps/server/random_text.h"
#include "base/names.h"
#include "base/text.h"

namespace ebb::server::dialects {
namespace {

constexpr int64_t preview_side = 512;

std::string message(const std::string& type, Json data) {
  return json_text({{"type", type}, {"data", std::move(data)}});
}

// u32 1 (a preview), u32 1 (JPEG), both with the most significant byte first, then the picture.
std::string preview_bytes(const std::string& jpeg) {
  return std::string("\0\0\0\1\0\0\0\1", 8) + jpeg;
}

bool is_end(const Event& e) {
  return e.name == "done" || e.name == "failed" || e.name == "removed";
}

// What a client reads: of all prompts how many there are, of its own how they go on. As ComfyUI has
// it, the number is told when a prompt is queued, when it begins, before its first message, and
// when it ends, between its last message and the one that no node is worked on.
class Feed : public std::enable_shared_from_this<Feed> {
 public:
  Feed(Service& s, std::string client) : service_(s), client_(std::move(client)) {}

  // Messages wait until the client can read them: it may send a prompt as soon as it can.
  void start(const Call& c) {
    std::vector<JobView> now;
    subscription_ = service_.queue().subscribe(
        [weak = weak_from_this()](const Event& e, const Json& data) {
          if (const auto self = weak.lock()) self->add(e, data);
        },
        &now);
    first_left_ = std::ranges::count_if(
        now, [](const JobView& v) { return comfy::is_prompt(*v.job) && !is_finished(v.status); });
    to_ = c.exchange->websocket(*c.request);
    if (!to_) throw HttpFault(503, "too_many_streams", "too many clients read events");
    c.exchange->on_leave([self = shared_from_this()] {});  // it lives until then
    send(status(0, client_));
    work();
  }

 private:
  // Under the queue's lock: asks it for nothing. Where memory is short a message would be missing.
  void add(const Event& e, const Json& data) {
    try {
      tell(e, data);
    } catch (const std::exception&) {
      const std::lock_guard lock(mutex_);
      fails_ = true;
      if (!works_) to_->close(fault);
    }
  }
  void tell(const Event& e, const Json& data) {
    if (e.name == "bye") return later([this] { to_->close(); });
    const auto job = e.job.lock();
    if (!job || !comfy::is_prompt(*job)) return;
    change_ += e.name == "queued" ? 1 : is_end(e) ? -1 : 0;
    const bool is_own = comfy::client_of(*job) == client_;
    if (is_own && is_end(e))
      return later([this, job, left = change_] { send_end(*job, left); }, true);
    if (e.name == "queued" || e.name == "started" || is_end(e))
      later([this, left = change_] { send(status(left)); });
    if (is_own) tell_own(e, data, job);
  }

  void tell_own(const Event& e, const Json& data, const std::shared_ptr<const Job>& job) {
    if (e.name == "started") {
      later([this, job] {
        send(message("execution_start", {{"prompt_id", job->id}}));
        send(message("execution_cached", {{"nodes", Json::array()}, {"prompt_id", job->id}}));
        send_executing(*job, comfy::sampler_of(*job));
      });
    } else if (e.name == "step" && data.at("step") != 0) {
      later([this, job, step = data.at("step"), steps = data.at("steps")] {
        send(message("progress", {{"value", step},
                                  {"max", steps},
                                  {"prompt_id", job->id},
                                  {"node", comfy::sampler_of(*job)}}));
      });
      const auto preview = data.at("preview_id").get<int64_t>();
      if (preview != std::exchange(preview_, preview) && preview != 0)
        later([this, job] { send_preview(*job); }, true);
    }
  }

  // ---- in order: at once, or on a codec thread behind what takes time
  void later(std::function<void()> task, bool takes_time = false) {
    const std::lock_guard lock(mutex_);
    if (!works_ && !takes_time) return task();
    tasks_.push_back(std::move(task));
    if (!std::exchange(works_, true))
      service_.codec().add([self = shared_from_this()] { self->work(); });
  }
  void work() {
    while (true) {
      std::function<void()> task;
      {
        const std::lock_guard lock(mutex_);
        works_ = !tasks_.empty();
        if (fails_) to_->close(fault);
        if (!works_) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      try {
        task();
      } catch (const std::exception&) {  // a message would be missing
        to_->close(fault);
      }
    }
  }

  // Messages are not told again: a client that misses some is to begin anew.
  void send(std::string text) {
    if (to_->send(std::move(text)) == Sent::behind)
      to_->close("this client does not read what it is sent");
  }
  // `left`: behind the first number.
  std::string status(int64_t left, const std::string& sid = "") const {
    Json data = {{"status", {{"exec_info", {{"queue_remaining", first_left_ + left}}}}}};
    if (!sid.empty()) data["sid"] = sid;
    return message("status", std::move(data));
  }
  void send_executing(const Job& job, const Json& node) {
    send(message("executing", {{"node", node}, {"display_node", node}, {"prompt_id", job.id}}));
  }
  // Whatever the end is, the last message says that no node is worked on: clients wait for it.
  void send_end(const Job& job, int64_t left) {
    const auto v = service_.queue().find(job.id);
    if (v && v->job.get() == &job) send_result(*v);
    send(status(left));
    send_executing(job, nullptr);
  }
  void send_result(const JobView& v) {
    if (v.status == JobStatus::failed) return send(message("execution_error", comfy::end_of(v)));
    if (v.status == JobStatus::cancelled)
      return send(message("execution_interrupted", comfy::end_of(v)));
    const std::string& id = v.job->id;
    const Json outputs = comfy::outputs_of(v);
    for (const auto& [node, output] : outputs.items()) {
      send_executing(*v.job, node);
      send(
          message("executed",
                  {{"node", node}, {"display_node", node}, {"output", output}, {"prompt_id", id}}));
    }
    send(message("execution_success", {{"prompt_id", id}}));
  }
  void send_preview(const Job& job) {
    if (const auto p = service_.preview(job.id))
      to_->send_bytes(preview_bytes(small_jpeg(p->pixels, preview_side)));  // or a later one
  }

  static constexpr const char* fault = "the server could not tell what happens";

  Service& service_;
  std::string client_;
  int64_t first_left_ = 0;
  int64_t change_ = 0, preview_ = 0;  // under the queue's lock: of the number, the last preview
  std::shared_ptr<EventStream> to_;   // before work() begins
  std::mutex mutex_;                  // of what follows, taken behind the queue's lock
  bool works_ = true;                 // somebody is in work(), or will be
  bool fails_ = false;                // a message is missing
  std::deque<std::function<void()>> tasks_;
  std::shared_ptr<const void> subscription_;
};

// Among the words of a header.
bool says(const Request& r, std::string_view header, std::string_view word) {
  const std::vector<std::string_view> words = parted(r.header(header), ",");
  return std::ranges::any_of(
      words, [&](std::string_view w) { return small_letters(std::string(trimmed(w))) == word; });
}

bool asks_for_websocket(const Request& r) {
  return r.method == "GET" && says(r, "upgrade", "websocket") && says(r, "connection", "upgrade");
}

void socket(const Call& c) {
  constexpr size_t longest = 128;
  std::string client(c.request->parameter("clientId"));
  if (client.size() > longest) fail_field("clientId", "longer than ", longest, " bytes");
  if (client.empty()) client = random_text(32);
  if (!asks_for_websocket(*c.request))
    throw HttpFault(400, "bad_request",
                    "this is a WebSocket: the request must be a GET that asks for one");
  std::make_shared<Feed>(c.service, std::move(client))->start(c);
}

std::vector<Route> routes() { return comfy::with_prefixes({{"GET", "/ws", socket}}); }

}  // namespace

const Dialect& comfy_events() {
  static const Dialect d{"comfy_events", routes, comfy::render_fault};
  return d;
}

}  // namespace ebb::server::dialects
