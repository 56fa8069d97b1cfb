// ComfyUI's API: the WebSocket that tells how prompts go on.
#include <algorithm>

#include "apps/server/comfy/prompt.h"
#include "apps/server/random_text.h"
#include "base/names.h"

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

// What a client reads: of all prompts how many there are, of its own how they go on.
class Feed : public std::enable_shared_from_this<Feed> {
 public:
  Feed(Service& s, std::string client) : service_(s), client_(std::move(client)) {}

  // Events wait until the client can read them: it may send a prompt as soon as it can.
  void start(const Call& c) {
    const int64_t number =
        service_.queue().subscribe([self = shared_from_this()](const Event& e) { self->add(e); });
    const auto leave = [&s = service_, number] { s.queue().unsubscribe(number); };
    const std::string first = status(true);
    const auto to = c.exchange->websocket(*c.request);
    if (!to) {
      leave();
      throw HttpFault(503, "too_many_streams", "too many clients read events");
    }
    {
      const std::lock_guard lock(mutex_);
      to->send(first);
      for (std::string& text : std::exchange(waiting_, {})) to->send(std::move(text));
      to_ = to;
    }
    c.exchange->on_leave(leave);
  }

 private:
  std::string status(bool first) {
    const auto all = service_.queue().all();
    const auto left = std::ranges::count_if(
        all, [](const JobView& v) { return comfy::is_prompt(*v.job) && !is_finished(v.status); });
    Json data = {{"status", {{"exec_info", {{"queue_remaining", left}}}}}};
    if (first) data["sid"] = client_;
    return message("status", std::move(data));
  }

  void send(std::string text) {
    const std::lock_guard lock(mutex_);
    if (to_)
      to_->send(std::move(text));
    else
      waiting_.push_back(std::move(text));
  }

  // Under the queue's lock: asks it for nothing.
  void add(const Event& e) {
    if (e.name == "bye") return end();
    const auto job = e.job.lock();
    if (!job || !comfy::is_prompt(*job)) return;
    if (e.name == "queued" || e.name == "done" || e.name == "failed" || e.name == "removed")
      service_.codec().add([self = shared_from_this()] { self->send(self->status(false)); });
    if (comfy::client_of(*job) == client_) add_own(e, *job);
  }

  void add_own(const Event& e, const Job& job) {
    const Json prompt = {{"prompt_id", job.id}};
    if (e.name == "started") {
      send(message("execution_start", prompt));
      send(message("execution_cached", {{"nodes", Json::array()}, {"prompt_id", job.id}}));
      send_executing(job, comfy::sampler_of(job));
    } else if (e.name == "step" && e.data.at("step") != 0) {
      send(message("progress", {{"value", e.data.at("step")},
                                {"max", e.data.at("steps")},
                                {"prompt_id", job.id},
                                {"node", comfy::sampler_of(job)}}));
      send_preview(e.data.at("preview_id").get<int64_t>(), job.id);
    } else if (e.name == "done" || e.name == "failed" || e.name == "removed") {
      service_.codec().add([self = shared_from_this(), id = job.id] { self->send_end(id); });
    }
  }

  void send_executing(const Job& job, const Json& node) {
    send(message("executing", {{"node", node}, {"display_node", node}, {"prompt_id", job.id}}));
  }

  // Whatever the end is, the last message says that no node is worked on: clients wait for it.
  void send_end(const std::string& id) {
    const auto v = service_.queue().find(id);
    if (!v || !is_finished(v->status)) return;
    if (v->status == JobStatus::failed)
      send(message("execution_error", comfy::end_of(*v)));
    else if (v->status == JobStatus::cancelled)
      send(message("execution_interrupted", comfy::end_of(*v)));
    if (v->status == JobStatus::completed) {
      const Json outputs = comfy::outputs_of(*v);
      for (const auto& [node, output] : outputs.items()) {
        send_executing(*v->job, node);
        send(message(
            "executed",
            {{"node", node}, {"display_node", node}, {"output", output}, {"prompt_id", id}}));
      }
      send(message("execution_success", {{"prompt_id", id}}));
    }
    send_executing(*v->job, nullptr);
  }

  void send_preview(int64_t number, const std::string& id) {
    if (number == std::exchange(preview_, number) || number == 0) return;
    service_.codec().add([self = shared_from_this(), id] {
      if (const auto p = self->service_.preview(id))
        self->send_preview_bytes(preview_bytes(small_jpeg(p->pixels, preview_side)));
    });
  }

  void send_preview_bytes(std::string bytes) {
    const std::lock_guard lock(mutex_);
    if (to_) to_->send_bytes(std::move(bytes));
  }
  void end() {
    const std::lock_guard lock(mutex_);
    if (to_) to_->close();
  }

  Service& service_;
  std::string client_;
  int64_t preview_ = 0;  // the last one, under the queue's lock
  std::mutex mutex_;
  std::shared_ptr<EventStream> to_;   // null: not yet
  std::vector<std::string> waiting_;  // for it
};

void socket(const Call& c) {
  constexpr size_t longest = 128;
  std::string client(c.request->parameter("clientId"));
  if (client.size() > longest) fail_field("clientId", "longer than ", longest, " bytes");
  if (client.empty()) client = random_text(32);
  const auto says = [&](std::string_view header, std::string_view word) {
    return small_letters(std::string(c.request->header(header))).find(word) != std::string::npos;
  };
  if (!says("upgrade", "websocket") || !says("connection", "upgrade"))
    throw HttpFault(400, "bad_request", "this is a WebSocket: the request must ask for one");
  std::make_shared<Feed>(c.service, std::move(client))->start(c);
}

std::vector<Route> routes() { return comfy::with_prefixes({{"GET", "/ws", socket}}); }

}  // namespace

const Dialect& comfy_events() {
  static const Dialect d{"comfy_events", routes, comfy::render_fault};
  return d;
}

}  // namespace ebb::server::dialects
