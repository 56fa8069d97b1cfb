// Jobs that are made together: who joins, who has which turn, and that each ends by itself.
#include "apps/server/batch.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;
using server::Job;
using server::JobSpec;
using server::JobStatus;

std::shared_ptr<Job> job_of(const std::string& client, int64_t n = 1) {
  auto out = std::make_shared<Job>();
  out->spec.client = client, out->spec.flags.n = n;
  return out;
}

// The numbers, in `waiting`, of those that join a job of one picture.
std::vector<size_t> joined(const server::Jobs& waiting, int64_t most,
                           const std::set<size_t>& others = {}) {
  const auto number = [&](const Job& job) {
    return static_cast<size_t>(
        std::ranges::find(waiting, &job, [](const auto& w) { return w.get(); }) - waiting.begin());
  };
  std::vector<size_t> out;
  for (const auto& job : server::joining(*job_of("a"), waiting, most, [&](const Job& job) {
         return !others.contains(number(job));
       }))
    out.push_back(number(*job));
  return out;
}

// A server on which four pictures at most are made together, once as many are asked for.
class ServerBatch : public ::testing::Test {
 protected:
  void start(int64_t step_ms, int64_t most = 4, int64_t window = 5000) {
    server_ = std::make_unique<TestServer>(
        folder_.path(), step_ms, [&](auto& o) { o.max_batch = most, o.batch_window = window; });
  }
  std::string post(const json& changes) const {
    json body = {{"prompt", "a fox"}, {"size", "64"}, {"steps", 3}, {"seed", 5}};
    body.update(changes);
    const auto a = server_->post("/ebb/v1/jobs", body);
    EXPECT_EQ(a.status, 202) << a.body;
    return a.json()["id"];
  }
  void wait_for(const std::string& id, const std::string& status) const {
    for (int i = 0; i < 2000; ++i) {
      if (server_->get("/ebb/v1/jobs/" + id).json()["status"] == status) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "the job is never " << status;
  }
  // Of each picture of a job, the size of its batch.
  std::vector<int64_t> batches(const std::string& id) const {
    const json done = server_->finished(id);
    EXPECT_EQ(done["status"], "completed") << done.dump();
    std::vector<int64_t> out;
    for (const json& i : done["images"]) out.push_back(i["batch"]);
    return out;
  }
  std::string picture(const std::string& id) const {
    const json done = server_->finished(id);
    if (done["images"].empty()) return "";
    return server_->get(done["images"][0]["url"].get<std::string>()).body;
  }
  Folder folder_;
  std::unique_ptr<TestServer> server_;
};

}  // namespace

TEST(server_joining, pictures__are_at_most_as_many_as_may_be) {
  const server::Jobs waiting = {job_of("a"), job_of("b", 4), job_of("c", 2), job_of("d")};
  EXPECT_EQ(joined(waiting, 4), (std::vector<size_t>{0, 2}));
  EXPECT_EQ(joined(waiting, 5), (std::vector<size_t>{0, 2, 3}));
  EXPECT_EQ(joined(waiting, 1), std::vector<size_t>());
}

TEST(server_joining, job__never_passes_one_of_its_client) {
  const server::Jobs waiting = {job_of("a"), job_of("b"), job_of("a"), job_of("b"), job_of("a")};
  EXPECT_EQ(joined(waiting, 8, {2}), (std::vector<size_t>{0, 1, 3}));
  EXPECT_EQ(joined(waiting, 8, {0, 1}), std::vector<size_t>());
}

TEST(server_joining, settings_of_all__make_the_key_and_those_of_one_do_not) {
  Job a, b;
  a.file = "1234", b.file = "5678";
  a.spec.flags.modes.init = "jobs/1234.init.png", b.spec.flags.modes.init = "jobs/5678.init.png";
  a.spec.flags.prompt = "fox", b.spec.flags.prompt = "dog";
  b.spec.flags.negative = "cat", b.spec.flags.n = 3, b.spec.flags.generate.seed = 8;
  const auto key = [](const Job& j) { return server::batch_key(j.spec.flags, j); };
  EXPECT_EQ(key(a), key(b));
  EXPECT_NE(key(a), "");
  const auto changed = [&](const auto& change) {
    Job other;
    other.file = a.file, other.spec.flags = a.spec.flags;
    change(other.spec.flags);
    return key(other) != key(a);
  };
  EXPECT_TRUE(changed([](auto& o) { o.generate.steps = 21; }));
  EXPECT_TRUE(changed([](auto& o) { o.generate.guidance = 3; }));
  EXPECT_TRUE(changed([](auto& o) { o.modes.strength = 0.5; }));
  EXPECT_TRUE(changed([](auto& o) { o.modes.init.clear(); }));
  EXPECT_TRUE(changed([](auto& o) { o.model = "other"; }));
  EXPECT_TRUE(changed([](auto& o) { o.lora.texts = {"x:0.5"}; }));
  EXPECT_TRUE(changed([](auto& o) { o.diffusion = {{"prediction", "v"}}; }));
  a.spec.flags.generate.batch_invariant = true;
  EXPECT_EQ(key(a), "");
}

// Those that wait are looked at again whenever another one comes.
TEST_F(ServerBatch, job__is_settled_once_for_all_that_may_join_it) {
  class Counting final : public server::Engine {
   public:
    explicit Counting(std::atomic<int>& leads, std::atomic<int>& others)
        : leads_(leads), others_(others) {}
    void run(const Job& job, int64_t first, server::JobEvents& events) override {
      fake_->run(job, first, events);
    }
    Joins joins(const Job&) override {
      ++leads_;
      return [this](const Job&) { return ++others_ < 0; };
    }
    void run_batch(std::span<server::BatchMember>) override {}
    server::JobMemory plan(const Job&) override { return {}; }
    void release() override {}
    std::string loaded() const override { return fake_->loaded(); }

   private:
    std::atomic<int>&leads_, &others_;
    std::unique_ptr<server::Engine> fake_ = server::fake_engine(1);
  };
  std::atomic<int> leads = 0, others = 0;
  server_ = std::make_unique<TestServer>(
      folder_.path(), 1, [](auto& o) { o.max_batch = 4, o.batch_window = 10000; },
      [&](const auto&) { return std::make_unique<Counting>(leads, others); });
  wait_for(post(json::object()), "generating");
  for (int i = 0; i < 10; ++i) {  // of another client each, so that all are asked about
    JobSpec spec;
    spec.client = str("client ", i);
    server_->service().queue().submit(spec);
    for (int k = 0; k < 1000 && others <= i; ++k)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(others, i + 1);
  }
  EXPECT_EQ(leads, 1);
  server_->service().queue().cancel_all();
}

TEST(server_queue, job_that_joined__has_had_its_turn_and_no_other_waits_longer) {
  server::Queue q({}, "");
  const auto add = [&](const char* client) {
    JobSpec spec;
    spec.client = client;
    return q.submit(spec)->id;
  };
  const std::string a1 = add("a"), a2 = add("a"), a3 = add("a"), b1 = add("b"), b2 = add("b");
  const auto lead = q.next();
  EXPECT_EQ(lead->id, a1);
  const server::Jobs waiting = q.waiting_jobs();  // b1 a2 b2 a3
  ASSERT_EQ(waiting[1]->id, a2);
  q.join({waiting[1]});
  EXPECT_EQ(q.running_ids(), (std::vector<std::string>{a1, a2}));
  const std::string b3 = add("b"), a4 = add("a");
  EXPECT_EQ(q.waiting(), (std::vector<std::string>{b1, b2, a3, b3, a4}));
  q.finish(*lead, JobStatus::completed);
  EXPECT_EQ(q.running()->job->id, a2);
  q.finish(*waiting[1], JobStatus::completed);
  EXPECT_FALSE(q.running());
  EXPECT_EQ(q.find(a2)->status, JobStatus::completed);
}

// Once jobs of others have had their turns, those that one had before do not count.
TEST(server_queue, turns__are_forgotten_when_all_have_had_them) {
  server::Queue q({}, "");
  const auto add = [&](const char* client) {
    JobSpec spec;
    spec.client = client;
    return q.submit(spec)->id;
  };
  for (int i = 0; i < 3; ++i) add("a");
  const auto lead = q.next();
  q.join(q.waiting_jobs());  // a has had three turns
  for (int i = 0; i < 5; ++i) add("b");
  for (int i = 0; i < 3; ++i) q.next();
  const std::string late = add("a");
  EXPECT_EQ(q.waiting()[1], late);  // behind one of b
}

TEST(server_queue, job_that_was_joined_but_is_cancelled__does_not_join) {
  server::Queue q({}, "");
  q.submit({}), q.submit({});
  q.next();
  const server::Jobs waiting = q.waiting_jobs();
  q.cancel(waiting[0]->id);
  EXPECT_EQ(q.join(waiting), server::Jobs());
  EXPECT_EQ(q.find(waiting[0]->id)->status, JobStatus::cancelled);
}

TEST_F(ServerBatch, equal_jobs__are_made_together_with_the_pictures_that_they_have_alone) {
  start(1);
  const std::vector<json> asked = {{{"prompt", "a dog"}},
                                   {{"negative", "snow"}},
                                   {{"seed", 9}},
                                   {{"prompt", "a cat"}, {"seed", 4}}};
  std::vector<std::string> together, pictures;
  for (const json& body : asked) together.push_back(post(body));
  for (const std::string& id : together) {
    EXPECT_EQ(batches(id), (std::vector<int64_t>{4}));
    pictures.push_back(picture(id));
  }
  server_.reset();
  start(1, 1);
  for (size_t i = 0; i < asked.size(); ++i) {
    const std::string alone = post(asked[i]);
    EXPECT_EQ(batches(alone), (std::vector<int64_t>{1}));
    EXPECT_EQ(picture(alone), pictures[i]) << i;
  }
}

TEST_F(ServerBatch, jobs_of_other_settings__are_made_alone) {
  start(20, 2, 200);
  const std::string first = post({{"steps", 10}}), other = post({{"steps", 4}}),
                    last = post({{"steps", 4}, {"guidance", 2}});
  server_->service().queue().cancel(first);
  EXPECT_EQ(batches(other), (std::vector<int64_t>{1}));
  EXPECT_EQ(batches(last), (std::vector<int64_t>{1}));
}

TEST_F(ServerBatch, cancelled_member__ends_at_once_and_the_others_go_on) {
  start(50);
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(post({{"seed", i}, {"steps", 12}}));
  for (const std::string& id : ids) wait_for(id, "generating");
  EXPECT_TRUE(server_->service().queue().cancel(ids[1]));
  wait_for(ids[1], "cancelled");
  EXPECT_EQ(server_->get("/ebb/v1/jobs/" + ids[2]).json()["status"], "generating");
  for (const size_t i : {0, 2, 3}) EXPECT_EQ(batches(ids[i]), (std::vector<int64_t>{4}));
  EXPECT_TRUE(server_->finished(ids[1])["images"].empty());
}

TEST_F(ServerBatch, all_members_cancelled__the_next_job_runs) {
  start(50);
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(post({{"seed", i}, {"steps", 200}}));
  for (const std::string& id : ids) wait_for(id, "generating");
  server_->service().queue().cancel_all();
  for (const std::string& id : ids) EXPECT_EQ(server_->finished(id)["status"], "cancelled");
  for (int i = 0; i < 4; ++i) ids[static_cast<size_t>(i)] = post({{"seed", i}});
  for (const std::string& id : ids) EXPECT_EQ(batches(id), (std::vector<int64_t>{4}));
}

TEST_F(ServerBatch, skipped_member__leaves_its_picture_out) {
  start(50);
  const std::string one = post({{"steps", 10}}), two = post({{"steps", 10}, {"n", 3}});
  wait_for(two, "generating");
  EXPECT_TRUE(server_->service().queue().skip(two));
  const json skipped = server_->finished(two);
  EXPECT_EQ(skipped["status"], "completed") << skipped.dump();
  EXPECT_TRUE(skipped["images"].empty());
  EXPECT_EQ(batches(one), (std::vector<int64_t>{4}));
}

TEST_F(ServerBatch, member_that_fails__has_its_error_and_the_others_their_pictures) {
  start(1);
  std::vector<std::string> ids;
  for (const char* prompt : {"a", "fail", "b", "c"}) ids.push_back(post({{"prompt", prompt}}));
  const json failed = server_->finished(ids[1]);
  EXPECT_EQ(failed["status"], "failed") << failed.dump();
  EXPECT_EQ(failed["error"]["message"], "fake: the prompt asks for a failure");
  for (const size_t i : {0, 2, 3}) EXPECT_EQ(batches(ids[i]), (std::vector<int64_t>{1}));
}

// Of 64 bytes a pixel and 1 GB.
TEST_F(ServerBatch, memory_for_three_pictures__makes_three_and_one) {
  start(1);
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(post({{"seed", i}, {"size", "2048"}}));
  ids.push_back(post({{"seed", 3}, {"size", "2048"}}));
  for (const size_t i : {0, 1, 2}) EXPECT_EQ(batches(ids[i]), (std::vector<int64_t>{3}));
  EXPECT_EQ(batches(ids[3]), (std::vector<int64_t>{1}));
}

TEST_F(ServerBatch, members__have_progress_and_previews_of_their_own) {
  start(60);
  server_->service().look();
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(post({{"seed", i}, {"steps", 20}}));
  std::set<std::string> previews;
  for (const std::string& id : ids) {
    while (server_->get("/ebb/v1/jobs/" + id + "/preview").status != 200)
      ASSERT_FALSE(is_finished(server_->service().queue().find(id)->status));
    previews.insert(server_->get("/ebb/v1/jobs/" + id + "/preview").body);
    const json job = server_->get("/ebb/v1/jobs/" + id).json();
    EXPECT_GT(job["progress"]["step"], 0) << job.dump();
    EXPECT_EQ(job["progress"]["steps"], 20);
  }
  EXPECT_EQ(previews.size(), 4u);
  server_->service().queue().cancel_all();
}

}  // namespace ebb::testing
